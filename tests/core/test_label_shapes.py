"""Labels of any shape: stacks train as single clients do, and a user's loss receives the original shape."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fedcm
from fedcm.config.experiment import read_experiment
from fedcm.core.losses import cross_entropy, is_one_hot, squared_error
from fedcm.core.round_loop import run_rounds
from fedcm.data.dataset import Dataset, Examples
from fedcm.errors import UserError
from fedcm.executors.local import LocalExecutor
from fedcm.runs.build import build

BATCH, CLIENTS, CLASSES = 4, 6, 3
SIZES = (9, 4, 7, 1, 8, 12)  # full batches, short ones and a single example


class Sequences(nn.Module):
    """(b, 5) -> (b, classes, T): a score of every class for each of T labels."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.length = length
        self.linear = nn.Linear(5, CLASSES * length)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x).unflatten(1, (CLASSES, self.length))


def make_clients(labels: Tensor) -> list[tuple[Tensor, Tensor]]:
    draw = torch.Generator().manual_seed(2)
    x = torch.randn(sum(SIZES), 5, generator=draw)
    return list(zip(x.split(SIZES), labels.split(SIZES), strict=True))


def draw_classes(*shape: int) -> Tensor:
    return torch.randint(CLASSES, (sum(SIZES), *shape), generator=torch.Generator().manual_seed(3))


def draw_numbers(*shape: int) -> Tensor:
    return torch.randn(sum(SIZES), *shape, generator=torch.Generator().manual_seed(4))


def train_model(model: nn.Module, labels: Tensor, **more) -> tuple[Tensor, list]:
    torch.manual_seed(0)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    clients = make_clients(labels)
    got, history = fedcm.train(
        model, clients, fedcm.FedCM(0.3), rounds=8, batch_size=BATCH, lr=0.2, test=clients[0], seed=1, **more
    )
    return torch.cat([parameter.detach().reshape(-1) for parameter in got.parameters()]), history


CASES = {
    "T=1": (lambda: Sequences(1), draw_classes(1)),
    "T=3": (lambda: Sequences(3), draw_classes(3)),
    "T=batch": (lambda: Sequences(BATCH), draw_classes(BATCH)),
    "(n,1) classes": (lambda: nn.Linear(5, CLASSES), draw_classes(1)),
    "D=1": (lambda: nn.Linear(5, 1), draw_numbers(1)),
    "D=3": (lambda: nn.Linear(5, 3), draw_numbers(3)),
    "D=batch": (lambda: nn.Linear(5, BATCH), draw_numbers(BATCH)),
    "D=2x3": (lambda: nn.Sequential(nn.Linear(5, 6), nn.Unflatten(1, (2, 3))), draw_numbers(2, 3)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("stack", [2, 4, 10])
def test_a_stack_trains_as_single_clients_with_labels_of_any_shape(name: str, stack: int) -> None:
    build, labels = CASES[name]
    alone, lone_history = train_model(build(), labels, stack=1)
    stacked, history = train_model(build(), labels, stack=stack)
    torch.testing.assert_close(stacked, alone, rtol=1e-4, atol=1e-5)
    assert history[-1]["loss"] == pytest.approx(lone_history[-1]["loss"], rel=1e-4)


def train_with_plain_sgd(model: nn.Module, labels: Tensor, loss) -> Tensor:
    """Train with plain torch: the same as FedAvg with one client, full batches and one step per round."""
    torch.manual_seed(0)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    x, y = make_clients(labels)[0]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    for _ in range(8):
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("stack", [1, 2])
def test_the_default_loss_is_torchs_mean_for_every_label_shape(name: str, stack: int) -> None:
    build, labels = CASES[name]
    model, clients = build(), make_clients(labels)[:1] * 2
    torch.manual_seed(0)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    got = fedcm.train(model, clients, fedcm.FedAvg(), rounds=8, batch_size=100, lr=0.2, stack=stack).model
    squeezed = "classes" in name
    loss = F.mse_loss if labels.is_floating_point() else lambda o, y: F.cross_entropy(o, y[:, 0] if squeezed else y)
    flat = torch.cat([parameter.detach().reshape(-1) for parameter in got.parameters()])
    torch.testing.assert_close(flat, train_with_plain_sgd(build(), labels, loss), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("form", ["pairs", "arrays", "datasets"])
@pytest.mark.parametrize("shape", [(), (1,), (2,), (2, 3)])
def test_a_user_loss_receives_labels_in_their_original_shape(form: str, shape: tuple[int, ...]) -> None:
    seen: set[tuple[int, ...]] = set()

    def loss(outputs: Tensor, labels: Tensor) -> Tensor:
        seen.add(tuple(labels.shape[1:]))
        return (outputs.flatten(1).mean(1) - labels.reshape(len(labels), -1).mean(1)).square().mean()

    clients: list[Any] = make_clients(draw_numbers(*shape))
    if form == "arrays":
        clients = [(x.numpy(), y.numpy()) for x, y in clients]
    if form == "datasets":
        clients = [list_dataset(x, y) for x, y in clients]
    fedcm.train(nn.Linear(5, 2), clients, fedcm.FedAvg(), rounds=1, loss=loss, test=clients[0])
    assert seen == {shape}


def list_dataset(x: Tensor, y: Tensor) -> torch.utils.data.Dataset:
    class Listed(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return len(x)

        def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
            return x[index], y[index]

    return Listed()


def test_a_user_squared_error_on_column_labels_trains_like_the_default() -> None:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(60, 3, generator=draw)
    y = x @ torch.tensor([[1.0], [-2.0], [0.5]])
    clients = [(x[k::6], y[k::6]) for k in range(6)]
    settings = {"rounds": 60, "lr": 0.2, "batch_size": 10, "test": (x, y)}
    own = fedcm.train(nn.Linear(3, 1), clients, fedcm.FedAvg(), loss=lambda o, t: ((o - t) ** 2).mean(), **settings)
    default = fedcm.train(nn.Linear(3, 1), clients, fedcm.FedAvg(), **settings)
    assert own.history[-1]["test_loss"] < 1e-4
    assert default.history[-1]["test_loss"] < 1e-4


def test_a_loss_that_broadcasts_raises_before_training() -> None:
    """Labels (n,) and outputs (n, 1): a difference of the two would be (n, n)."""
    x = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))
    clients = [(x, x[:, 0])]
    with pytest.raises(UserError, match=r"outputs \(4, 1\) and labels \(4,\).* broadcasts one over the other"):
        fedcm.train(nn.Linear(3, 1), clients, fedcm.FedAvg(), rounds=1, loss=lambda o, y: ((o - y) ** 2).mean())
    fedcm.train(nn.Linear(3, 1), clients, fedcm.FedAvg(), rounds=1, loss=lambda o, y: ((o[:, 0] - y) ** 2).mean())
    fedcm.train(nn.Linear(3, 1), clients, fedcm.FedAvg(), rounds=1, loss=lambda o, y: F.mse_loss(o.reshape(-1), y))


@pytest.mark.parametrize("case", ["outputs of 0", "one example", "equal labels", "labels of integers"])
def test_a_loss_that_broadcasts_raises_for_every_kind_of_examples(case: str) -> None:
    """Outputs and labels on which the two losses agree by chance."""
    x = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))
    y = x[:, 0].clone()
    model = nn.Linear(3, 1)
    clients = [(x[:1], y[:1]), (x, y)] if case == "one example" else [(x, y)]
    if case == "outputs of 0":
        nn.init.zeros_(model.weight)
        nn.init.zeros_(model.bias)
    if case == "equal labels":
        y[:2] = 1.0
    if case == "labels of integers":
        clients = [(x, (y > 0).long())]
    with pytest.raises(UserError, match="broadcasts one over the other"):
        fedcm.train(model, clients, fedcm.FedAvg(), rounds=1, loss=lambda o, y: ((o - y) ** 2).mean())


class Pair(nn.Linear):
    """Gives its output twice, in a tuple."""

    def forward(self, input: Tensor) -> Any:
        return super().forward(input)[:, 0], input


BINARY = {
    "(b,)": (lambda: nn.Sequential(nn.Linear(3, 1), nn.Flatten(0)), lambda outputs: outputs),
    "(b, 1)": (lambda: nn.Linear(3, 1), lambda outputs: outputs[:, 0]),
    "a tuple": (lambda: Pair(3, 1), lambda outputs: outputs[0]),
}


@pytest.mark.parametrize("shape", BINARY)
def test_a_single_score_has_no_accuracy(shape: str) -> None:
    """The highest of one score is always the first class: only the user's loss knows what the score means."""
    model, score = BINARY[shape]
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).long()

    def loss(outputs: Any, labels: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(score(outputs), labels.float())

    _, history = fedcm.train(model(), [(x, y)], fedcm.FedAvg(), rounds=20, lr=1.0, test=(x, y), loss=loss)
    assert history[-1]["test_accuracy"] is None
    assert history[-1]["test_loss"] < 0.3


@pytest.mark.parametrize(
    ("labels", "outputs", "message"),
    [
        (torch.zeros(8, 3), 2, r"must give outputs of the labels' shape, \(3,\) per example, and gave .*\(2, 2\)"),
        (torch.arange(8.0), 2, r"must give 1 output per example, and gave .*\(2, 2\)"),
        (torch.arange(8).reshape(4, 2), 2, r"must give outputs \(classes, …\) for labels \(2,\), and gave .*\(2, 2\)"),
    ],
    ids=["three numbers", "one number", "two classes"],
)
def test_outputs_of_the_wrong_shape_raise_with_the_right_shape(labels: Tensor, outputs: int, message: str) -> None:
    with pytest.raises(UserError, match=message):
        fedcm.train(nn.Linear(3, outputs), [(torch.zeros(len(labels), 3), labels)], fedcm.FedAvg(), rounds=1)


def test_column_labels_of_classes_have_an_accuracy() -> None:
    x = torch.tensor([[1.0], [-1.0], [2.0], [-2.0]])
    y = (x > 0).long()
    history = fedcm.train(nn.Linear(1, 2), [(x, y)], fedcm.FedAvg(), rounds=30, lr=1.0, test=(x, y)).history
    assert history[-1]["test_accuracy"] == 1.0


def test_one_hot_labels_raise_with_a_hint_unless_the_loss_is_the_users() -> None:
    x, y = torch.randn(4, 5), F.one_hot(torch.tensor([0, 1, 2, 0]))
    with pytest.raises(UserError, match="for one-hot labels give their argmax"):
        fedcm.train(nn.Linear(5, 3), [(x, y)], fedcm.FedAvg(), rounds=1)
    with pytest.raises(UserError, match="look one-hot; give their argmax"):
        fedcm.train(nn.Linear(5, 3), [(x, y.float())], fedcm.FedAvg(), rounds=1)
    fedcm.train(nn.Linear(5, 3), [(x, y.float())], fedcm.FedAvg(), rounds=1, loss=F.cross_entropy)


@pytest.mark.parametrize(
    ("rows", "one_hot"),
    [
        ([[0, 1], [1, 0]], True),  # two classes
        ([[0, 1, 0], [0, 0, 1]], True),
        ([[1], [1]], False),  # a column
        ([[0, 1], [1, 1]], False),  # two labels at once
        ([[0, 0], [1, 0]], False),
        ([[0, 2, -1], [1, 0, 0]], False),
        ([0, 1], False),
    ],
)
def test_one_hot_labels_are_recognised(rows: list[Any], one_hot: bool) -> None:
    assert is_one_hot(torch.tensor(rows)) is one_hot
    assert is_one_hot(torch.tensor(rows).float()) is one_hot


@pytest.mark.parametrize("labels", [(5,), (5, 1), (5, 1, 1)])
@pytest.mark.parametrize("outputs", [(5,), (5, 1)])
def test_axes_of_length_1_make_no_difference_to_squared_errors(
    outputs: tuple[int, ...], labels: tuple[int, ...]
) -> None:
    given, wanted = torch.arange(5.0).reshape(outputs), torch.tensor([3.0, 1.0, 4.0, 1.0, 5.0]).reshape(labels)
    assert squared_error(given, wanted).item() == pytest.approx((9 + 0 + 4 + 4 + 1) / 5)
    with pytest.raises(ValueError, match="outputs of the labels' shape"):
        squared_error(given[:4], wanted)
    with pytest.raises(ValueError, match="outputs of the labels' shape"):
        squared_error(given.reshape(5, 1).expand(5, 2), wanted)


def test_losses_reject_shapes_with_swapped_axes() -> None:
    with pytest.raises(ValueError, match=r"outputs \(4, 3, 2\) and labels \(4, 2, 3\)"):
        squared_error(torch.zeros(4, 3, 2), torch.zeros(4, 2, 3))
    with pytest.raises(ValueError, match=r"outputs \(4, 3\) and labels \(4, 2\)"):
        cross_entropy(torch.zeros(4, 3), torch.zeros(4, 2, dtype=torch.int64))


def test_negative_labels_in_a_dataset_raise() -> None:
    with pytest.raises(UserError, match="class numbers from 0 on, got -100"):
        Dataset("made", Examples(torch.zeros(2, 3), torch.tensor([1, -100])), None, 2)


EXPERIMENT = {
    "name": "shapes",
    "rounds": 6,
    "data": {"source": "digits"},
    "split": {"kind": "iid", "clients": 8},
    "participation": {"kind": "everyone"},
    "model": {"name": "test_label_shapes:tags"},
    "algorithm": {"name": "fedcm"},
    "client": {"batch_size": 8, "lr": 0.5},
    "engine": {"layout": "contiguous", "compile": "off"},
}


def tags() -> nn.Module:
    return Sequences(8)


def test_the_autotuned_stack_trains_as_single_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """T = 8 labels per example and batches of 8: the case in which weights (b,) broadcast over losses (b, T)."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    draw = torch.Generator().manual_seed(5)
    x = torch.randn(128, 5, generator=draw)
    y = (x @ torch.randn(5, 8, generator=draw) > 0).long()
    dataset = Dataset("tags", Examples(x, y), Examples(x, y), CLASSES)
    losses = {}
    for stack in (1, 8, "auto"):
        built = build(read_experiment(EXPERIMENT | {"engine": EXPERIMENT["engine"] | {"stack": stack}}), data=dataset)
        server = built.algorithm.init_server(built.problem.initial_params)
        *_, last = run_rounds(built.algorithm, LocalExecutor(built.runner), built.plan, server)
        losses[stack] = last.metrics.test_loss
    assert losses[8] == pytest.approx(losses[1], rel=1e-4)
    assert losses["auto"] == pytest.approx(losses[1], rel=1e-4)


def test_a_split_by_label_accepts_column_labels_and_rejects_other_shapes() -> None:
    x = torch.zeros(40, 5)
    column = Dataset("column", Examples(x, torch.arange(40)[:, None] % 2), None, 2)
    flat = Dataset("flat", Examples(x, torch.arange(40) % 2), None, 2)
    table = EXPERIMENT | {
        "split": {"kind": "dirichlet", "clients": 4, "concentration": 0.3},
        "model": {"name": "linear"},
    }
    splits = [build(read_experiment(table), data=given).checksums["split"] for given in (column, flat)]
    assert splits[0] == splits[1]
    several = Dataset("several", Examples(x, torch.arange(80).reshape(40, 2) % 2), None, 2)
    with pytest.raises(UserError, match=r"one label per example, got labels of shape \(40, 2\)"):
        build(read_experiment(table), data=several)
