"""The metrics of an evaluation against literal formulas, and torchmetrics called on everything at once."""

import math
from typing import Any

import pytest
import torch
import torchmetrics.functional as tm
from torch import Tensor, nn

import fedcm
from fedcm.core.scoring.metric_set import choose_column
from fedcm.core.scoring.torchmetrics_metric import Task, infer_task
from fedcm.errors import UserError

DRAW = torch.Generator().manual_seed(0)
X = torch.randn(1203, 5, generator=DRAW)  # three pieces, the last of them not full
CLASSES = torch.randint(6, (len(X),), generator=DRAW)
NUMBERS = X.sum(1) + torch.randn(len(X), generator=DRAW)
BITS = (torch.randn(len(X), 3, generator=DRAW) > 0).float()
TRAIN = {"classes": (X[:40], CLASSES[:40]), "numbers": (X[:40], NUMBERS[:40]), "bits": (X[:40], BITS[:40])}


def evaluate(labels: Tensor, outputs: int, metrics: list[Any], **more: Any) -> tuple[dict[str, Any], Tensor]:
    """Return the last line of the history, and the model's outputs on the test data."""
    torch.manual_seed(1)
    result = fedcm.train(
        nn.Linear(5, outputs),
        [(X[:40], labels[:40]), (X[40:80], labels[40:80])],
        fedcm.FedAvg(),
        rounds=1,
        test=(X, labels),
        metrics=metrics,
        **more,
    )
    with torch.no_grad():
        return result.history[-1], result.model(X)


def compute_auroc(outputs: Tensor, labels: Tensor, **kind: Any) -> float:
    value = tm.auroc(outputs, labels, **kind)
    assert value is not None
    return value.item()


def test_metrics_of_classes() -> None:
    names = ["f1", "accuracy", "top2", "top5", "perplexity", "auroc", "CohenKappa", "precision", "recall"]
    line, outputs = evaluate(CLASSES, 6, [*names, {"name": "f1", "average": "micro", "label": "micro"}])
    assert [key for key in line if key.startswith("test_")] == [
        "test_loss",
        *(f"test_{name}" for name in (*names, "micro")),
    ]
    ranks = (outputs > outputs.gather(1, CLASSES[:, None])).sum(1)
    assert line["test_accuracy"] == (ranks == 0).sum().item() / len(X)
    assert line["test_top2"] == (ranks < 2).sum().item() / len(X)
    assert line["test_top5"] == (ranks < 5).sum().item() / len(X)
    assert line["test_perplexity"] == math.exp(line["test_loss"])
    kind: dict[str, Any] = {"task": "multiclass", "num_classes": 6}
    assert line["test_f1"] == pytest.approx(tm.f1_score(outputs, CLASSES, average="macro", **kind).item(), rel=1e-6)
    assert line["test_micro"] == pytest.approx(line["test_accuracy"], rel=1e-6)
    assert line["test_auroc"] == pytest.approx(compute_auroc(outputs, CLASSES, **kind), rel=1e-5)
    assert line["test_CohenKappa"] == pytest.approx(tm.cohen_kappa(outputs, CLASSES, **kind).item(), rel=1e-4)


def test_metrics_of_numbers() -> None:
    line, outputs = evaluate(NUMBERS, 1, ["mae", "mse", "rmse", "r2", "pearson"])
    error = outputs[:, 0].double() - NUMBERS.double()
    assert line["test_mae"] == pytest.approx(error.abs().mean().item(), rel=1e-6)
    assert line["test_mse"] == pytest.approx(error.square().mean().item(), rel=1e-6)
    assert line["test_rmse"] == pytest.approx(error.square().mean().sqrt().item(), rel=1e-6)
    spread = (NUMBERS - NUMBERS.mean()).square().mean().item()
    assert line["test_r2"] == pytest.approx(1 - error.square().mean().item() / spread, rel=1e-3)
    both = torch.stack([outputs[:, 0], NUMBERS])
    assert line["test_pearson"] == pytest.approx(torch.corrcoef(both)[0, 1].item(), rel=1e-4)


def test_labels_of_zeros_and_ones_are_several_yes_or_no_questions() -> None:
    loss = nn.functional.binary_cross_entropy_with_logits
    line, outputs = evaluate(BITS, 3, ["auroc", "f1"], loss=loss)
    assert line["test_auroc"] == pytest.approx(
        compute_auroc(outputs, BITS.long(), task="multilabel", num_labels=3), rel=1e-5
    )
    line, outputs = evaluate(BITS[:, 0], 1, ["auroc"], loss=lambda out, y: loss(out[:, 0], y))
    assert line["test_auroc"] == pytest.approx(compute_auroc(outputs[:, 0], BITS[:, 0].long(), task="binary"), rel=1e-5)


def test_functions_get_the_whole_set_in_its_order() -> None:
    seen = []

    def spread(outputs: Tensor, labels: Tensor) -> float:
        seen.append((outputs, labels))
        return float((outputs[1:] - outputs[:-1]).abs().mean())

    line, outputs = evaluate(CLASSES, 6, [{"name": spread, "higher_is_better": False}])
    assert torch.equal(seen[-1][1], CLASSES)
    torch.testing.assert_close(seen[-1][0], outputs)
    assert line["test_spread"] == pytest.approx((outputs[1:] - outputs[:-1]).abs().mean().item(), rel=1e-5)


def test_workers_and_a_resume_give_the_same_bits() -> None:
    def middle(outputs: Tensor, labels: Tensor) -> Tensor:
        return outputs.median()

    metrics = ["f1", "auroc", "top2", middle, "perplexity"]
    lines = [evaluate(CLASSES, 6, metrics, workers=workers, validation=0.2)[0] for workers in (1, 2, 3)]
    assert len({str({**line, "seconds": 0}) for line in lines}) == 1


def test_a_value_that_is_not_finite_is_none() -> None:
    line, _ = evaluate(CLASSES, 6, ["accuracy", {"name": lambda outputs, labels: math.nan, "label": "nothing"}])
    assert line["test_nothing"] is None


def test_a_regression_without_metrics_has_its_loss_alone() -> None:
    line, _ = evaluate(NUMBERS, 1, None)  # pyright: ignore[reportArgumentType]
    assert [(key, line[key]) for key in line if key.startswith("test_")][1:] == [("test_accuracy", None)]


@pytest.mark.parametrize(
    ("outputs", "labels", "task"),
    [
        ((4, 3), torch.tensor([0, 1, 2, 0]), Task("multiclass", 3)),
        ((4, 3, 2), torch.zeros(4, 2, dtype=torch.int64), Task("multiclass", 3)),
        ((4, 1), torch.tensor([0, 1, 1, 0]), Task("binary", 1)),
        ((4,), torch.tensor([0.0, 1.0, 1.0, 0.0]), Task("binary", 1)),
        ((4, 2), torch.tensor([[0.0, 1.0]] * 4), Task("multilabel", 2)),
        ((4, 2), torch.tensor([[0, 1]] * 4), Task("multilabel", 2)),
        ((4, 1), torch.tensor([0.0, 2.0, 1.0, 0.0]), Task("regression", 1)),
    ],
)
def test_the_task_follows_from_outputs_and_labels(outputs: tuple[int, ...], labels: Tensor, task: Task) -> None:
    assert infer_task(torch.zeros(outputs), labels) == task


@pytest.mark.parametrize(
    ("metrics", "sentence"),
    [
        (["f1", "f1"], "two are called 'f1'"),
        (["fone"], "there is no metric 'fone'"),
        (["top7"], "top7 needs at least 7 classes, got 6"),
        (["mae"], "needs numbers as labels, not classes"),
        (["r2", "loss"], "not 'loss'"),
        ([{"name": "f1", "averag": "micro"}], "cannot be made with"),
        ([{"name": "accuracy", "average": "micro"}], "has no options"),
        (["ConfusionMatrix"], "must give one number, got shape"),
        ([lambda outputs, labels: 1.0], "give it a label"),
        ([{"name": lambda outputs, labels: "high", "label": "wrong"}], "must give one number, got str"),
        ([3], "must be a name, a table with a name, or a function, got 3"),
        ("f1", "must be a list"),
        ([], "at least one metric"),
        (["nowhere.to_be_found:metric"], "cannot be imported"),
    ],
)
def test_a_metric_that_cannot_work_is_one_sentence(metrics: Any, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence) as error:
        evaluate(CLASSES, 6, metrics)
    assert "\n" not in str(error.value)


def test_metrics_without_anything_to_evaluate_are_an_error() -> None:
    with pytest.raises(UserError, match=r"needs test data, .* and there are none"):
        fedcm.train(nn.Linear(5, 6), [TRAIN["classes"]], fedcm.FedAvg(), rounds=1, metrics=["f1"])


def test_accuracy_of_numbers_is_an_error_if_it_is_named() -> None:
    with pytest.raises(UserError, match="'accuracy' needs class numbers"):
        evaluate(NUMBERS, 1, ["accuracy"])


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "torchmetrics", None)
    with pytest.raises(UserError, match=r"requires torchmetrics.*pip install 'fedcm\[metrics\]'"):
        evaluate(CLASSES, 6, ["f1"])
    evaluate(CLASSES, 6, ["accuracy", "top5", "perplexity"])


def test_a_column_is_the_last_word_of_a_name() -> None:
    assert choose_column({"name": "in-memory:brier"}) == "brier"
