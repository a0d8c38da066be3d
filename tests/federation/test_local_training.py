"""Schedules and local optimisers in a federation: the sites take the steps of the simulation."""

from pathlib import Path
from typing import Any

import pytest
from sites_here import InProcessChannel, make_experiment, make_federated, write_kits
from test_server import parameters, run_all, simulate

from fedcm.errors import UserError
from fedcm.federation.settings import SiteLimits, reject_forbidden

CLIENT: dict[str, Any] = {"epochs": 1, "batch_size": 50, "lr": 0.1}


@pytest.mark.parametrize("algorithm", ["fedcm", "scaffold"])
def test_schedules_give_the_bits_of_the_simulation(algorithm: str, tmp_path: Path) -> None:
    """Sites report the steps they took; the server computes the sum of the factors itself."""
    schedules = {"schedule": {"kind": "cosine", "warmup": 2}, "step_schedule": {"kind": "polynomial", "final": 0.3}}
    server = {"lr": 0.9, "schedule": {"kind": "step", "every": 2, "factor": 0.5}}
    assert_same_bits(make_experiment(algorithm, client=CLIENT | schedules, server=server), tmp_path)


@pytest.mark.parametrize("algorithm", ["fedcm", "scaffold"])
def test_an_optimiser_gives_the_bits_of_the_simulation(algorithm: str, tmp_path: Path) -> None:
    client = CLIENT | {"lr": 0.01, "optimizer": {"name": "adamw", "betas": [0.8, 0.99]}}
    assert_same_bits(make_experiment(algorithm, client=client), tmp_path)


def assert_same_bits(chosen: Any, tmp_path: Path) -> None:
    run = run_all(InProcessChannel(write_kits(chosen, tmp_path), make_federated(chosen)), chosen)
    assert parameters(run) == simulate(chosen, tmp_path)


@pytest.mark.parametrize("place", ["client.schedule", "client.step_schedule", "server.schedule"])
def test_a_site_imports_only_functions_that_its_operator_allows(place: str) -> None:
    section, key = place.split(".")
    table = {"name": "trial", "model": {"name": "linear"}, "algorithm": {"name": "fedcm"}}
    table |= {section: {key: {"kind": "function", "function": "evil:f"}}}
    with pytest.raises(UserError, match=rf"got {place}.function = 'evil:f'; its operator can add it to limits"):
        reject_forbidden(table, SiteLimits())
    reject_forbidden(table, SiteLimits(code=["evil:f"]))
