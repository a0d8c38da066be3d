"""Every keyword of `fedcm.train`: the trajectory is that of the literal run with the same settings."""

import inspect
from collections.abc import Callable
from typing import Any

import literal
import numpy as np
import pytest
import torch
from bench import APART, CLASSES, CLOSE, FEATURES, SIZES, make_clients
from schema import put
from torch import nn

import fedcm

CLIENTS = make_clients()
USUAL: dict[str, Any] = {"rounds": 4, "participation": 3, "epochs": 2, "batch_size": 4, "lr": 0.3, "seed": 11}
SETTINGS = {  # keyword -> the setting of an experiment
    "epochs": "client.epochs",
    "steps": "client.steps",
    "batch_size": "client.batch_size",
    "lr": "client.lr",
    "lr_decay": "client.lr_decay",
    "weight_decay": "client.weight_decay",
    "weight_decay_at": "client.weight_decay_at",
    "clip": "client.clip",
    "server_lr": "server.lr",
    "weights": "server.weights",
    "seed": "seed",
    "stack": "engine.stack",
}


def model() -> nn.Module:
    torch.manual_seed(5)
    return nn.Linear(FEATURES, CLASSES)


def flatten(given: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().reshape(-1) for parameter in given.parameters()])


def train_model(**keywords: Any) -> tuple[torch.Tensor, list[dict[str, Any]]]:
    ended, history = fedcm.train(model(), CLIENTS, fedcm.FedCM(0.3), **USUAL | keywords)
    return flatten(ended), history


def assert_literal_trajectory(**keywords: Any) -> torch.Tensor:
    """Train with keywords that are settings; None leaves a keyword out."""
    given = {key: value for key, value in (USUAL | keywords).items() if value is not None}
    ended, history = fedcm.train(model(), CLIENTS, fedcm.FedCM(0.3), **given)
    table: dict[str, Any] = {"algorithm": {"name": "fedcm", "alpha": 0.3}, "classes": CLASSES}
    for key, value in given.items():
        if key in SETTINGS:
            put(table, SETTINGS[key], value)
    cohorts = [line["clients"] for line in history]
    *_, last = literal.run_literally(table, CLIENTS, cohorts, start=flatten(model()).double())
    assert float((flatten(ended) - last["x"]).abs().max()) <= CLOSE
    return flatten(ended)


def changes_the_trajectory(*values: Any, **more: Any) -> Callable[[str], None]:
    def row(keyword: str) -> None:
        one, other = (assert_literal_trajectory(**{keyword: value}, **more) for value in values)
        assert float((one - other).abs().max()) >= APART

    return row


def counts_the_rounds(keyword: str) -> None:
    assert [len(train_model(rounds=rounds)[1]) for rounds in (1, 3)] == [1, 3]


def accepts_a_number_a_probability_or_everyone(keyword: str) -> None:
    assert {line["cohort"] for line in train_model(participation=2)[1]} == {2}
    assert {line["cohort"] for line in train_model(participation=1.0)[1]} == {len(SIZES)}
    assert {line["cohort"] for line in train_model(participation=fedcm.FixedSize(4))[1]} == {4}
    by_chance = [line["cohort"] for line in train_model(participation=0.5, rounds=40, epochs=1)[1]]
    assert abs(np.mean(by_chance) - 3) <= 4 * np.sqrt(6 / 4 / 40)
    assert len(set(by_chance)) > 2
    usual = {key: value for key, value in USUAL.items() if key != "participation"}
    assert {line["cohort"] for line in fedcm.train(model(), CLIENTS, fedcm.FedCM(), **usual).history} == {len(SIZES)}


def chooses_the_graph(keyword: str) -> None:
    """By default a ring: less mixing than on the complete graph, where all nodes agree after every round."""
    usual: dict[str, Any] = USUAL | {"participation": 1.0}
    default, ring, complete = (
        fedcm.train(model(), CLIENTS, fedcm.DSGD(), topology=graph, **usual).history[-1]["consensus_distance"]
        for graph in (None, fedcm.Ring(), fedcm.Complete())
    )
    assert default == ring > 0.01 > 1e-5 > complete


def is_evaluated_on(keyword: str) -> None:
    x, y = make_clients((50,), seed=1)[0]
    ended, history = train_model(test=(x, y))
    outputs = literal.logits(ended.double(), x.double(), CLASSES)
    assert history[-1]["test_loss"] == pytest.approx(literal.cross_entropy(outputs, y).item(), rel=1e-5)
    assert history[-1]["test_accuracy"] == (outputs.argmax(1) == y).double().mean().item()
    assert "test_loss" not in train_model()[1][-1]


def is_evaluated_when_due(keyword: str) -> None:
    for every, due in ((None, [9, 10]), (4, [3, 7, 10])):
        given = {} if every is None else {"evaluate_every": every}
        history = train_model(rounds=11, test=CLIENTS[0], **given)[1]
        assert [line["round"] for line in history if "test_loss" in line] == due


def takes_another_loss(keyword: str) -> None:
    """Twice the loss at half the rate is the same trajectory."""

    def twice(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return 2 * nn.functional.cross_entropy(outputs, labels)

    torch.testing.assert_close(train_model(loss=twice, lr=0.15)[0], train_model()[0], rtol=1e-5, atol=1e-6)


def takes_a_loss_by_name(keyword: str) -> None:
    assert torch.equal(train_model(loss="cross_entropy")[0], train_model()[0])
    takes_another_loss(keyword)


def changes_every_batch(keyword: str) -> None:
    """A function that doubles the features is a training on doubled features; bundled changes need images."""

    def double(batch: Any, generator: torch.Generator) -> Any:
        return 2 * batch.features, batch.labels

    doubled = [(2 * x, y) for x, y in CLIENTS]
    expected = flatten(fedcm.train(model(), doubled, fedcm.FedCM(0.3), **USUAL).model)
    assert torch.equal(train_model(augment=[double])[0], expected)
    with pytest.raises(fedcm.UserError, match="'flip' needs images"):
        train_model(augment=["flip"])


def makes_the_batch(keyword: str) -> None:
    def double(examples: list[Any]) -> Any:
        return torch.stack([2 * x for x, _ in examples]), torch.stack([y for _, y in examples])

    doubled = [(2 * x, y) for x, y in CLIENTS]
    expected = flatten(fedcm.train(model(), doubled, fedcm.FedCM(0.3), **USUAL).model)
    assert torch.equal(train_model(collate=double)[0], expected)
    assert torch.equal(train_model(collate="torch.utils.data:default_collate")[0], train_model()[0])


def reads_items_anew(keyword: str) -> None:
    """Items are read twice by the checks of a training, then once in every pass of every client."""

    class Counting(torch.utils.data.Dataset[Any]):
        def __init__(self, x: torch.Tensor, y: torch.Tensor) -> None:
            self.x, self.y, self.reads = x, y, 0

        def __len__(self) -> int:
            return len(self.y)

        def __getitem__(self, index: int) -> Any:
            self.reads += 1
            return self.x[index], int(self.y[index])

    reads = {}
    for fresh, rounds in ((False, 4), (True, 4), (True, 6)):
        counting = [Counting(*one) for one in CLIENTS]
        given = USUAL | {"rounds": rounds, "participation": 1.0, "fresh": fresh}
        fedcm.train(model(), counting, fedcm.FedCM(0.3), **given)
        reads[fresh, rounds] = [own.reads for own in counting[1:]]  # the checks read client 0
    sizes = np.array(SIZES[1:])
    assert (np.array(reads[False, 4]) <= sizes + 10).all()
    assert reads[True, 4] == (sizes + 4 * 2 * sizes).tolist()
    assert reads[True, 6] == (sizes + 6 * 2 * sizes).tolist()


def calls_the_model_once_for_several_clients(keyword: str) -> None:
    class Counting(nn.Linear):
        calls = 0

        def forward(self, input: torch.Tensor) -> torch.Tensor:
            Counting.calls += 1
            return super().forward(input)

    calls = []
    for stack in (1, 3):
        Counting.calls = 0
        fedcm.train(Counting(FEATURES, CLASSES), CLIENTS, fedcm.FedCM(0.3), stack=stack, **USUAL)
        calls.append(Counting.calls)
        assert_literal_trajectory(stack=stack)
    assert calls[1] < calls[0]


ROWS: dict[str, Callable[[str], None]] = {
    "rounds": counts_the_rounds,
    "test": is_evaluated_on,
    "participation": accepts_a_number_a_probability_or_everyone,
    "topology": chooses_the_graph,
    "epochs": changes_the_trajectory(None, 3),
    "steps": changes_the_trajectory(None, 5, epochs=None),
    "batch_size": changes_the_trajectory(None, 3),
    "lr": changes_the_trajectory(None, 0.4),
    "lr_decay": changes_the_trajectory(None, 0.5),
    "server_lr": changes_the_trajectory(None, 0.4),
    "weight_decay": changes_the_trajectory(None, 0.5),
    "weight_decay_at": changes_the_trajectory(None, "step", weight_decay=0.4, clip=0.3),
    "clip": changes_the_trajectory(None, 0.2),
    "weights": changes_the_trajectory(None, "examples"),
    "loss": takes_a_loss_by_name,
    "augment": changes_every_batch,
    "collate": makes_the_batch,
    "fresh": reads_items_anew,
    "evaluate_every": is_evaluated_when_due,
    "stack": calls_the_model_once_for_several_clients,
    "seed": changes_the_trajectory(None, 4),
}


@pytest.mark.parametrize("keyword", ROWS)
def test_every_keyword_does_what_its_docstring_says(keyword: str) -> None:
    ROWS[keyword](keyword)


def test_every_keyword_has_a_row() -> None:
    keywords = {name for name, own in inspect.signature(fedcm.train).parameters.items() if own.kind is own.KEYWORD_ONLY}
    assert set(ROWS) == keywords - {"progress", "resume_from", "workers"}  # tests/api has these


def test_progress_is_shown_if_requested(capsys: pytest.CaptureFixture[str]) -> None:
    quiet, _ = train_model()
    assert capsys.readouterr().err == ""
    shown, _ = train_model(progress=True)
    assert "4/4" in capsys.readouterr().err
    assert torch.equal(quiet, shown)
