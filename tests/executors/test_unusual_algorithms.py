"""Algorithms with unusual fields: local states that are matrices, gradients of 0, server states with a history."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

import fedcm
from fedcm import Gradient, LocalRun, Nothing, Round, Step, Vector


class State(NamedTuple):
    params: Vector


class Report(NamedTuple):
    moved: Vector


class Memory(NamedTuple):
    gradients: Vector  # (2, P): the last two gradients


@dataclass(frozen=True)
class TwoGradients(fedcm.Algorithm[State, State, Nothing, Report]):
    """Every step averages the last two gradients of the client."""

    def init_server(self, params: Vector) -> State:
        return State(params)

    def init_client(self, params: Vector) -> Nothing:
        return Nothing()

    def broadcast(self, server: State) -> State:
        return server

    def init_local(self, full_gradient: Gradient, sent: State, kept: Nothing) -> Memory:
        return Memory(torch.zeros(2, sent.params.shape[-1], dtype=sent.params.dtype))

    def step(
        self, gradient: Gradient, params: Vector, sent: State, kept: Nothing, local: Memory, step: Step
    ) -> tuple[Vector, Memory]:
        newest = gradient(params)
        before = local.gradients[..., 1, :].expand_as(newest)
        return (before + newest) / 2, Memory(torch.stack([before, newest], dim=-2))

    def report(self, run: LocalRun, sent: State, kept: Nothing) -> tuple[Report, Nothing]:
        return Report(run.moved), kept

    def update(self, server: State, mean: Report, round: Round) -> State:
        return State(server.params - mean.moved)


def train(algorithm: Any, sizes: tuple[int, ...], **settings: Any) -> fedcm.TrainingResult:
    draw = torch.Generator().manual_seed(0)
    clients = [(torch.randn(size, 4, generator=draw), torch.arange(size) % 2) for size in sizes]
    torch.manual_seed(0)
    return fedcm.train(nn.Linear(4, 2), clients, algorithm, rounds=3, batch_size=2, **settings)


@pytest.mark.parametrize("sizes", [(2, 8), (2, 8, 4, 6)], ids=str)
def test_a_local_state_that_is_a_matrix_can_be_stacked(sizes: tuple[int, ...]) -> None:
    """Clients of unequal sizes: some have ended their steps while others still move."""
    alone, stacked = (train(TwoGradients(), sizes, stack=stack).model for stack in (1, len(sizes)))
    for one, other in zip(alone.parameters(), stacked.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_fedlada_survives_coordinates_whose_gradient_is_always_0() -> None:
    clients = [(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]), torch.tensor([0, 1]))] * 2
    history = fedcm.train(nn.Linear(2, 2), clients, fedcm.FedLADA(), rounds=4, lr=0.01).history
    assert history[-1]["loss"] < history[0]["loss"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ghbm", "fedac", "fedpd", "adaalter", "mime", "qg-dsgdm"])
def test_every_server_state_can_be_diagnosed(name: str, tmp_path: Any) -> None:
    changes = {"algorithm.name": name, "rounds": 3, "participation": {"kind": "everyone"}, "split.clients": 5}
    run = fedcm.run("demo", overrides=changes, diagnose_every=3, runs_dir=tmp_path, notify=lambda line: None)
    diagnosis = run.metrics[-1]["diagnosis"]
    assert diagnosis["gradient_norm"] > 0
    assert not {"anchor_cosine", "mean_cosine", "accumulator_cosine", "history_cosine", "rounds_cosine"} & set(
        diagnosis
    )


@pytest.mark.parametrize("name", ["vrl-sgd", "d-sgd", "qg-dsgdm"])
def test_a_server_learning_rate_is_rejected_where_there_is_none(name: str) -> None:
    from fedcm.algorithms import ALGORITHMS

    with pytest.raises(fedcm.UserError, match=f"'{name}' has no server learning rate, so server.lr must be 1, got 0.5"):
        train(ALGORITHMS[name](), (4, 4), server_lr=0.5)
    train(ALGORITHMS[name](), (4, 4), participation=fedcm.FixedSize(2))  # all of them: not rejected


class Path3:
    """A graph of the user's own."""

    def __init__(self, joined: bool) -> None:
        self.joined = joined

    def connect(self, nodes: int, seed: int) -> Any:
        adjacency = fedcm.Ring().connect(nodes, seed)
        adjacency[0, -1] = adjacency[-1, 0] = False
        if not self.joined:
            adjacency[0, 1] = adjacency[1, 0] = False
        return adjacency


def test_a_graph_of_ones_own_is_used_and_checked() -> None:
    assert train(fedcm.DSGD(), (4, 4, 4), topology=Path3(joined=True)).history[-1]["consensus_distance"] > 0
    with pytest.raises(fedcm.UserError, match="the topology Path3 must give a symmetric boolean matrix"):
        train(fedcm.DSGD(), (4, 4, 4), topology=Path3(joined=False))


def test_a_changed_graph_is_rejected_by_a_resume(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "graph.txt"
    file.write_text("0 1 0\n1 0 1\n0 1 0\n")
    changes = {
        "algorithm.name": "d-sgd",
        "participation": {"kind": "everyone"},
        "split.clients": 3,
        "topology": {"kind": "file", "file": "graph.txt"},
        "rounds": 2,
    }
    run = fedcm.run("demo", overrides=changes, runs_dir=tmp_path / "runs", notify=lambda line: None)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert fedcm.resume(run, rounds=3, notify=lambda line: None).outcome == "finished"
    file.write_text("0 1 1\n1 0 1\n1 1 0\n")
    with pytest.raises(fedcm.UserError, match="'topology' has another checksum"):
        fedcm.resume(run, rounds=4, notify=lambda line: None)
