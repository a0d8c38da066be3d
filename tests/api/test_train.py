"""`fedcm.train`: any module, any clients, any algorithm."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, TensorDataset

import fedcm

ALGORITHMS = [fedcm.FedAvg(), fedcm.FedCM(0.2), fedcm.FedAdam(), fedcm.Scaffold(), fedcm.FedDyn(0.1)]


def clients(count: int = 8) -> list[tuple[torch.Tensor, torch.Tensor]]:
    x = torch.randn(count, 20, 3, generator=torch.Generator().manual_seed(0))
    return [(one, (one.sum(1) > 0).long()) for one in x]


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=str)
def test_every_algorithm_learns_an_easy_problem(algorithm: Any) -> None:
    server_lr = 0.1 if isinstance(algorithm, fedcm.FedAdam) else 1.0
    trained = fedcm.train(
        nn.Linear(3, 2), clients(), algorithm, rounds=60, lr=0.5, server_lr=server_lr, batch_size=5, test=clients()[0]
    )
    assert trained.history[-1]["test_accuracy"] >= 0.9
    assert trained.history[-1]["loss"] < 0.5 * trained.history[0]["loss"]


def test_training_changes_a_copy_of_the_model() -> None:
    model = nn.Linear(3, 2)
    before = model.weight.detach().clone()
    trained, _ = fedcm.train(model, clients(), fedcm.FedCM(), rounds=2)
    assert torch.equal(model.weight, before)
    assert isinstance(trained, nn.Linear)
    assert not torch.equal(trained.weight, before)


def test_torch_datasets_and_pairs_give_the_same_losses() -> None:
    class Own(Dataset[tuple[torch.Tensor, int]]):
        def __init__(self, pair: tuple[torch.Tensor, torch.Tensor]) -> None:
            self.pair = pair

        def __len__(self) -> int:
            return len(self.pair[0])

        def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
            return self.pair[0][index], int(self.pair[1][index])

    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    ways: list[list[Any]] = [clients(), [TensorDataset(*pair) for pair in clients()], [Own(pair) for pair in clients()]]
    histories = [fedcm.train(model, way, fedcm.FedCM(), rounds=3, participation=0.5).history for way in ways]
    losses = [[line["loss"] for line in history] for history in histories]
    assert losses[0] == losses[1] == losses[2]


def test_the_same_arguments_give_the_same_bits_and_another_seed_does_not() -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)

    def weights(seed: int) -> torch.Tensor:
        trained = fedcm.train(model, clients(), fedcm.FedCM(), rounds=4, participation=3, batch_size=4, seed=seed)
        return trained.model.weight  # pyright: ignore[reportReturnType]

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))


def test_float64_models_train_in_float64() -> None:
    trained, _ = fedcm.train(nn.Linear(3, 2).double(), clients(), fedcm.Scaffold(), rounds=2)
    assert next(trained.parameters()).dtype == torch.float64


def test_a_regression_has_a_loss_and_no_accuracy() -> None:
    pairs = [(x, x[:, 0] * 2 - 1) for x, _ in clients()]
    trained, history = fedcm.train(nn.Linear(3, 1), pairs, fedcm.FedAvg(), rounds=80, lr=0.2, test=pairs[0])
    assert history[-1]["test_loss"] < 1e-3
    assert history[-1]["test_accuracy"] is None
    assert trained(torch.tensor([[1.0, 0.0, 0.0]])).item() == pytest.approx(1.0, abs=0.05)


def test_a_users_own_loss_is_used() -> None:
    def hinge(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return torch.relu(1 - outputs[:, 0] * (2.0 * labels - 1)).mean()

    _, history = fedcm.train(nn.Linear(3, 1), clients(), fedcm.FedCM(), rounds=40, loss=hinge, lr=0.5)
    assert history[-1]["loss"] < 0.6 * history[0]["loss"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"participation": True}, "got True"),
        ({"participation": 1.5}, r"above 0 and at most 1"),
        ({"rounds": 0}, "rounds"),
        ({"lr": 0.0}, "lr"),
        ({"batch_size": 0}, "batch_size"),
        ({"algorithm": fedcm.Scaffold(), "weights": "examples"}, "weights"),
        ({"clients": []}, "at least one client"),
        ({"model": nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))}, "running statistics"),
    ],
)
def test_bad_arguments_raise_one_sentence(arguments: dict[str, Any], message: str) -> None:
    given = {"model": nn.Linear(3, 2), "clients": clients(), "algorithm": fedcm.FedCM(), "rounds": 1} | arguments
    model, pairs, algorithm = (given.pop(key) for key in ("model", "clients", "algorithm"))
    with pytest.raises(ValueError, match=message):
        fedcm.train(model, pairs, algorithm, **given)


@pytest.mark.parametrize(
    ("old", "new"), [("Refused", "UserError"), ("Trained", "TrainingResult"), ("WorkerFailed", "TrainingFailed")]
)
def test_old_public_names_work_with_a_warning(old: str, new: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"fedcm.{old} is now fedcm.{new}"):
        assert getattr(fedcm, old) is getattr(fedcm, new)
