"""Every bundled algorithm in `fedcm.train`: it learns, and two rounds and two more give the bits of four rounds."""

from typing import Any

import pytest
import torch
from torch import nn

import fedcm
from fedcm.algorithms import ALGORITHMS


def make_clients() -> list[tuple[torch.Tensor, torch.Tensor]]:
    draw = torch.Generator().manual_seed(0)
    centres = torch.randn(3, 6, generator=draw) * 2
    clients = []
    for client in range(4):
        labels = (torch.arange(12) + client) % 3
        clients.append((centres[labels] + torch.randn(12, 6, generator=draw), labels))
    return clients


def train(name: str, rounds: int, **settings: Any) -> fedcm.TrainingResult:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    clients = make_clients()
    adaptive = name in ("fedadam", "fedyogi", "fedadagrad")
    common = {"test": clients[0], "batch_size": 4, "lr": 0.05, "server_lr": 0.1 if adaptive else 1.0}
    return fedcm.train(model, clients, ALGORITHMS[name](), rounds=rounds, **(common | settings))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_resumed_training_has_the_bits_of_a_whole_one(name: str, tmp_path: Any) -> None:
    whole, half = train(name, 4), train(name, 2)
    half.state.save(tmp_path / "state")
    resumed = train(name, 2, resume_from=fedcm.RunState.load(tmp_path / "state"))
    for key, value in whole.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[key]), key


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_learns(name: str) -> None:
    rate = {"fedlada": 0.02, "fedmuon": 0.02, "fedac": 0.02}.get(name, 0.05)
    history = train(name, 25, lr=rate, evaluate_every=25).history
    assert history[-1]["test_loss"] < 0.7 * history[0]["loss"]


def test_a_graph_is_used_and_checked() -> None:
    ring, complete = (train("d-sgd", 3, topology=graph).history[-1] for graph in (fedcm.Ring(), fedcm.Complete()))
    assert complete["consensus_distance"] < 1e-5 < ring["consensus_distance"]
    with pytest.raises(fedcm.UserError, match="topology must be left out, because 'fedcm' has a server"):
        train("fedcm", 1, topology=fedcm.Ring())
    with pytest.raises(fedcm.UserError, match=r"topology must be a graph such as fedcm.Ring\(\)"):
        train("d-sgd", 1, topology="ring")


@pytest.mark.parametrize("name", [name for name, kind in ALGORITHMS.items() if kind.needs_all_clients])
def test_absent_clients_are_rejected_where_all_are_needed(name: str) -> None:
    with pytest.raises(fedcm.UserError, match=f"'{name}' must have every client in every round"):
        train(name, 1, participation=2)
