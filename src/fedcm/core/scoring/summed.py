"""Metrics that are sums over examples. Each piece of a set gives a numerator and a denominator, and these are added.

The sums are exact or correctly rounded, so a metric has the same bits for any order of the pieces.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from fedcm.core.losses import reshape_outputs
from fedcm.core.scoring.traits import ERROR, SHARE, MetricTraits
from fedcm.data.dataset import count_scored_labels
from fedcm.errors import UserError


class Fraction(NamedTuple):
    """A numerator and a denominator of one piece; the numerator is NaN if the metric is not defined on it."""

    numerator: float
    denominator: float


UNDEFINED = Fraction(math.nan, 0.0)


@final
@dataclass(frozen=True)
class SummedMetric:
    """A metric from sums over pieces.

    Attributes:
        name: Its name in metrics.jsonl, after the name of the set.
        traits: Its direction and range.
        count: Returns the fraction of one piece, from outputs, labels and the sum of the losses over examples.
        finish: Applied to Σ numerators / Σ denominators.
    """

    name: str
    traits: MetricTraits
    count: Callable[[Any, Any, float], Fraction]
    finish: Callable[[float], float] = float

    def combine(self, fractions: Sequence[Fraction]) -> float | None:
        """Return the metric on all pieces; None if it is not defined on one of them, or not a finite number."""
        numerator = math.fsum(one.numerator for one in fractions)
        if not math.isfinite(numerator):
            return None
        value = self.finish(numerator / math.fsum(one.denominator for one in fractions))
        return value if math.isfinite(value) else None


def count_correct(outputs: Any, labels: Any, loss: float) -> Fraction:
    """Count the labels for which the outputs (b, classes, …) are highest.

    Undefined if the labels are not classes, or the outputs are not scores of two or more classes.
    """
    if not _are_class_scores(outputs, labels):
        return UNDEFINED
    labels = _drop_last_axis(outputs, labels)
    if labels.shape[1:] != outputs.shape[2:]:
        return UNDEFINED
    return Fraction(float((outputs.argmax(1) == labels).sum()), float(count_scored_labels(labels)))


def make_top_k(k: int) -> Callable[[Any, Any, float], Fraction]:
    """Return the function that counts labels among the k highest outputs."""

    def count(outputs: Any, labels: Any, loss: float) -> Fraction:
        if not _are_class_scores(outputs, labels):
            raise UserError(f"top{k} needs class numbers as labels, and outputs (n, classes, …)")
        if outputs.shape[1] < k:
            raise UserError(f"top{k} needs at least {k} classes, got {outputs.shape[1]}")
        highest = outputs.topk(k, dim=1).indices
        labels = _drop_last_axis(outputs, labels)
        return Fraction(float((highest == labels.unsqueeze(1)).sum()), float(count_scored_labels(labels)))

    return count


def _sum_differences(measure: Callable[[Tensor], Tensor]) -> Callable[[Any, Any, float], Fraction]:
    def count(outputs: Any, labels: Any, loss: float) -> Fraction:
        if not (isinstance(outputs, Tensor) and isinstance(labels, Tensor) and labels.is_floating_point()):
            raise UserError("it needs numbers as labels, not classes")
        difference = reshape_outputs(outputs, labels).double() - labels.double()
        return Fraction(measure(difference).sum().item(), float(labels.numel()))

    return count


def _count_losses(outputs: Any, labels: Any, loss: float) -> Fraction:
    return Fraction(loss, float(count_scored_labels(labels)))


ACCURACY_METRIC = SummedMetric("accuracy", SHARE, count_correct)
_SUMMED = {
    "accuracy": ACCURACY_METRIC,
    "mae": SummedMetric("mae", ERROR, _sum_differences(torch.abs)),
    "mse": SummedMetric("mse", ERROR, _sum_differences(torch.square)),
    "rmse": SummedMetric("rmse", ERROR, _sum_differences(torch.square), math.sqrt),
    "perplexity": SummedMetric("perplexity", ERROR, _count_losses, lambda loss: math.exp(min(loss, 700.0))),
}
SUMMED_NAMES = (*_SUMMED, "top5")


def find_summed_metric(name: str) -> SummedMetric | None:
    """Return the metric of this name; None if there is none.

    >>> find_summed_metric("top3").name, find_summed_metric("f1")
    ('top3', None)
    """
    if match := re.fullmatch(r"top([1-9]\d{0,5})", name):
        return SummedMetric(name, SHARE, make_top_k(int(match[1])))
    return _SUMMED.get(name)


def _are_class_scores(outputs: Any, labels: Any) -> bool:
    if not (isinstance(outputs, Tensor) and isinstance(labels, Tensor)) or labels.is_floating_point():
        return False
    return outputs.dim() >= 2 and outputs.shape[1] >= 2


def _drop_last_axis(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return labels (b, 1) as (b,) if there is one row of outputs per example."""
    return labels[:, 0] if outputs.dim() == 2 and labels.shape[1:] == (1,) else labels
