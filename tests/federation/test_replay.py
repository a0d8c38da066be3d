"""A run with lost sites has the bits of a simulation of the cohorts that counted, and of no other."""

from pathlib import Path
from typing import Any

import pytest
from replay import read_cohorts, replay
from sites_here import InProcessChannel, make_experiment, make_federated, write_kits
from test_server import parameters, run_all


@pytest.mark.parametrize("algorithm", ["fedcm", "scaffold"])
def test_a_run_with_lost_sites_has_the_bits_of_the_replay(algorithm: str, tmp_path: Path) -> None:
    chosen = make_experiment(algorithm, 4, federation={"quorum": 0.6})

    def lose(site: str, fields: dict[str, Any], arrays: Any) -> Any:
        lost = {1: ("b",), 2: ("a", "c")}.get(fields["round"], ())
        return None if site in lost else (fields, arrays)

    run = run_all(InProcessChannel(write_kits(chosen, tmp_path), make_federated(chosen), lose), chosen)
    cohorts = read_cohorts(run)
    assert cohorts == [[0, 1, 2], [0, 2], [], [0, 1, 2]]
    assert parameters(replay(chosen, cohorts, tmp_path, "replayed")) == parameters(run)
    others = [[0, 1, 2], [0, 1], [], [0, 1, 2]]
    assert parameters(replay(chosen, others, tmp_path, "other")) != parameters(run)
