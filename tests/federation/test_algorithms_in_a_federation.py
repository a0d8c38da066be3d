"""Algorithms that a federation can run, and those that it rejects before anything is sent."""

from typing import Any

import numpy as np
import pytest
import torch

from fedcm.algorithms import ALGORITHMS
from fedcm.algorithms.averaging.fedexp import Report
from fedcm.config.experiment import read_experiment
from fedcm.core.algorithm import has_survey, is_decentralised
from fedcm.errors import UserError
from fedcm.federation.experiment import prepare_experiment
from fedcm.federation.server.replies import BadReply, ExpectedReply, check_reply


def make_table(algorithm: str, quorum: float = 1.0) -> dict[str, Any]:
    table = {"name": "trial", "rounds": 2, "model": {"name": "linear"}, "algorithm": {"name": algorithm}}
    return table | {"federation": {"quorum": quorum}}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_federation_accepts_all_algorithms_with_one_exchange(name: str) -> None:
    experiment = read_experiment(make_table(name))
    if not has_survey(experiment.algorithm) and not is_decentralised(experiment.algorithm):
        assert prepare_experiment(experiment).algorithm == experiment.algorithm
        return
    reason = "has no server, and a federation has one" if name in ("d-sgd", "qg-dsgdm") else "needs two exchanges"
    with pytest.raises(UserError, match=f"'{name}' {reason}"):
        prepare_experiment(experiment)


def test_an_algorithm_that_needs_all_clients_needs_all_sites() -> None:
    with pytest.raises(UserError, match=r"'vrl-sgd' must have every site in every round; set federation\.quorum = 1"):
        prepare_experiment(read_experiment(make_table("vrl-sgd", quorum=0.5)))
    assert prepare_experiment(read_experiment(make_table("fedcm", quorum=0.5))).federation.quorum == 0.5


def test_the_rejected_algorithms_are_the_known_ones() -> None:
    rejected = []
    for name in ALGORITHMS:
        try:
            prepare_experiment(read_experiment(make_table(name)))
        except UserError:
            rejected.append(name)
    assert sorted(rejected) == ["d-sgd", "feddane", "mime", "qg-dsgdm"]


def make_reply(moved: np.ndarray, square: np.ndarray) -> Any:
    expected = ExpectedReply("r", 3, Report(torch.zeros(5), torch.zeros(1)), "exact", None)
    fields = {"run": "r", "round": 3, "steps": 2, "loss": 0.5, "examples": 9, "seconds": 0.1, "bytes": 24}
    return check_reply(fields, {"moved": moved, "square": square}, expected, 2)


def test_a_report_with_a_scalar_is_read() -> None:
    reply = make_reply(np.arange(5, dtype=np.float32), np.array([30], dtype=np.float32))
    assert torch.equal(reply.report.moved, torch.arange(5.0))
    assert torch.equal(reply.report.square, torch.tensor([30.0]))


@pytest.mark.parametrize("square", [np.zeros(5, np.float32), np.float32(1), np.zeros(1, np.float64)], ids=str)
def test_a_scalar_of_another_shape_or_type_does_not_count(square: np.ndarray) -> None:
    with pytest.raises(BadReply, match=r"its square must be float32 \(1,\), got"):
        make_reply(np.zeros(5, np.float32), square)
