"""What new users ask for first, each in one small training against a literal computation.

The table of docs/guides/index.md names a test for each. Batches are whole clients here, so there is no order to repeat.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_schedules import list_torch_factors

import fedcm

ROOT = Path(__file__).parents[2]
CLASSES = 3
SIZES = (9, 6, 12)


def make_clients(seed: int = 0) -> list[tuple[Tensor, Tensor]]:
    draw = torch.Generator().manual_seed(seed)
    features = [torch.randn(size, 4, generator=draw).double() for size in SIZES]  # exact in the float32 of stored data
    return [(x, (x[:, :CLASSES] + 0.5 * torch.randn(len(x), CLASSES, generator=draw)).argmax(1)) for x in features]


CLIENTS = make_clients()


def make_model() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return nn.Linear(4, CLASSES).double()


def train(make: Callable[[], nn.Module] = make_model, clients: Any = CLIENTS, **settings: Any) -> fedcm.TrainingResult:
    usual = {"rounds": 4, "lr": 0.3, "batch_size": 20}
    return fedcm.train(make(), clients, fedcm.FedAvg(), **usual | settings)


def train_literally(
    make: Callable[[], nn.Module],
    clients: list[tuple[Tensor, Tensor]],
    *,
    rates: list[float],
    steps: Callable[[int, int], int] = lambda round, client: 1,
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.SGD,
) -> nn.Module:
    """FedAvg with an optimiser of torch; `rates` has the learning rate of every round."""
    start = make()
    for round, rate in enumerate(rates):
        ends = []
        for client, (x, y) in enumerate(clients):
            model = make()
            model.load_state_dict(start.state_dict())
            local = optimizer([own for own in model.parameters() if own.requires_grad], lr=rate)
            for _ in range(steps(round, client)):
                local.zero_grad()
                F.cross_entropy(model(x), y).backward()
                local.step()
            ends.append(model.state_dict())
        start.load_state_dict({name: torch.stack([end[name] for end in ends]).mean(0) for name in ends[0]})
    return start


def assert_equal_parameters(one: nn.Module, other: nn.Module) -> None:
    for (name, mine), yours in zip(one.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine, yours, rtol=0, atol=1e-9, msg=name)


class Transformer(nn.Module):
    """A model of torch's own layers that labels every token."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(7, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, dim_feedforward=16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, 7)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.layer(self.tokens(ids))).transpose(1, 2)


class LowRank(nn.Module):
    """A frozen layer with a trained change of rank 1."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Linear(4, CLASSES).requires_grad_(False)
        self.down, self.up = nn.Linear(4, 1, bias=False), nn.Linear(1, CLASSES, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.frozen(x) + self.up(self.down(x))


def seeded(kind: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(2)
            return kind().double()

    return make


def test_a_small_transformer_labels_every_token() -> None:
    texts = [torch.randint(7, (size, 6), generator=torch.Generator().manual_seed(size)) for size in SIZES]
    clients = [(text[:, :-1], text[:, 1:]) for text in texts]
    expected = train_literally(seeded(Transformer), clients, rates=[0.3] * 2)
    assert_equal_parameters(train(seeded(Transformer), clients, rounds=2).model, expected)


def test_adapters_of_low_rank_train_and_are_sent_alone() -> None:
    result = train(seeded(LowRank))
    assert_equal_parameters(result.model, train_literally(seeded(LowRank), CLIENTS, rates=[0.3] * 4))
    assert torch.equal(result.model.get_parameter("frozen.weight"), seeded(LowRank)().get_parameter("frozen.weight"))
    assert result.history[-1]["bytes_up"] == len(CLIENTS) * (4 + CLASSES) * 8


def compute_f1(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """The mean over classes of 2·hits / (predicted + true)."""
    guess = model(x).argmax(1)
    hits = torch.stack([((guess == k) & (y == k)).sum() for k in range(CLASSES)])
    both = torch.stack([(guess == k).sum() + (y == k).sum() for k in range(CLASSES)])
    return (2 * hits / both).mean().item()


def test_f1_is_evaluated_during_training() -> None:
    pytest.importorskip("torchmetrics")
    test = make_clients(seed=1)[2]
    seen = 0
    loop = fedcm.rounds(
        make_model(),
        CLIENTS,
        fedcm.FedAvg(),
        rounds=6,
        lr=0.3,
        batch_size=20,
        test=test,
        metrics=["f1"],
        evaluate_every=2,
    )
    for round in loop:
        if "test_f1" in round.metrics:
            assert round.metrics["test_f1"] == pytest.approx(compute_f1(round.model(), *test), rel=1e-6)
            seen += 1
    assert seen == 3


def test_a_training_ends_when_the_validation_no_longer_improves() -> None:
    validation = make_clients(seed=1)[2]
    usual = {"rounds": 30, "validation": validation, "evaluate_every": 1}
    scores = [line["validation_accuracy"] for line in train(**usual).history]
    last = next(k for k in range(3, 30) if max(scores[k - 2 : k + 1]) <= max(scores[: k - 2]))
    result = train(**usual, stop=fedcm.Stop(patience=3))
    assert (result.stopped_early, len(result.history)) == (True, last + 1)
    assert result.best_round == scores.index(max(scores[: last + 1]))


def test_every_client_has_a_test_set_of_its_own() -> None:
    tests = make_clients(seed=1)
    result = train(client_tests=tests)
    expected = [(result.model(x).argmax(1) == y).double().mean().item() for x, y in tests]
    assert result.client_results is not None
    assert result.client_results["values"] == expected
    assert result.history[-1]["clients_accuracy_worst"] == min(expected)


def test_a_cosine_with_warm_up_has_the_rates_of_torch() -> None:
    rates = [0.3 * factor for factor in list_torch_factors({"kind": "cosine", "warmup": 3}, 8)]
    result = train(rounds=8, lr_schedule=fedcm.Cosine(warmup=3))
    assert [line["client_lr"] for line in result.history] == pytest.approx(rates, rel=1e-9)
    assert_equal_parameters(result.model, train_literally(make_model, CLIENTS, rates=rates))


def test_adamw_on_clients_is_that_of_torch() -> None:
    def adamw(parameters: Any, lr: float) -> torch.optim.Optimizer:
        return torch.optim.AdamW(parameters, lr=lr, weight_decay=0.1)

    result = train(lr=0.05, steps=3, optimizer=fedcm.AdamW(weight_decay=0.1))
    expected = train_literally(make_model, CLIENTS, rates=[0.05] * 4, steps=lambda round, client: 3, optimizer=adamw)
    assert_equal_parameters(result.model, expected)


def test_clients_take_unequal_numbers_of_steps() -> None:
    def count(round: int, client: int) -> int:
        return 1 + (round + 2 * client) % 4

    result = train(steps=count)
    assert_equal_parameters(result.model, train_literally(make_model, CLIENTS, rates=[0.3] * 4, steps=count))


def test_the_tests_that_the_guide_names_exist() -> None:
    text = (ROOT / "docs" / "guides" / "index.md").read_text()
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", text)
    assert len(named) >= 14
    for file, name in named:
        assert re.search(rf"^def {name}\(", (ROOT / file).read_text(), flags=re.MULTILINE), (file, name)
