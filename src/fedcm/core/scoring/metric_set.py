"""The metrics of one training: those that `evaluation.metrics` names, in this order. The first is the headline."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from fedcm.core.scoring.summed import ACCURACY_METRIC, Fraction, SummedMetric, find_summed_metric
from fedcm.core.scoring.torchmetrics_metric import infer_task, make_torchmetrics_metric
from fedcm.core.scoring.traits import MetricTraits
from fedcm.core.scoring.whole import MetricFunction, WholeMetric
from fedcm.errors import UserError
from fedcm.system.imports import import_object

_OWN_KEYS = ("name", "label", "higher_is_better")  # of a table; all others are options of the metric


@final
@dataclass(frozen=True)
class MetricSet:
    """The metrics of a training.

    Attributes:
        members: The metrics, in order.
        is_given: Whether they were named in the experiment. If not, accuracy is None where it is not defined.
    """

    members: tuple[SummedMetric | WholeMetric, ...] = (ACCURACY_METRIC,)
    is_given: bool = False

    @property
    def headline(self) -> str:
        """The name of the first metric."""
        return self.members[0].name

    @property
    def summed(self) -> list[SummedMetric]:
        """The metrics from sums over pieces."""
        return [one for one in self.members if isinstance(one, SummedMetric)]

    @property
    def whole(self) -> list[WholeMetric]:
        """The metrics that need all outputs and labels of a set."""
        return [one for one in self.members if isinstance(one, WholeMetric)]

    @property
    def traits(self) -> dict[str, MetricTraits]:
        """Direction and range of each metric, by name."""
        return {one.name: one.traits for one in self.members}

    def count(self, outputs: Any, labels: Any, loss: float) -> tuple[Fraction, ...]:
        """Return the fractions of the summed metrics on one piece."""
        return tuple(one.count(outputs, labels, loss) for one in self.summed)

    def combine(
        self, fractions: Sequence[tuple[Fraction, ...]], whole: Mapping[str, float | None]
    ) -> dict[str, float | None]:
        """Return all metrics by name, in their order.

        Args:
            fractions: For each piece, the fractions of the summed metrics.
            whole: The values of the other metrics.
        """
        columns = zip(*fractions, strict=True)
        values = {one.name: one.combine(column) for one, column in zip(self.summed, columns, strict=True)}
        return {name: (values | dict(whole))[name] for name in self.traits}


DEFAULT_METRICS = MetricSet()


def make_metric_set(
    entries: Sequence[str | Mapping[str, Any]],
    functions: Mapping[str, MetricFunction],
    give_sample: Callable[[], tuple[Any, Any]],
) -> MetricSet:
    """Return the metrics that `evaluation.metrics` names.

    Args:
        entries: Names, or tables with a name and options.
        functions: Functions that are Python objects of this program, by name.
        give_sample: Returns outputs and labels of some examples; called only if a metric depends on them.

    Raises:
        UserError: If a metric is unknown or cannot be made, or two have the same name.
    """
    members: list[SummedMetric | WholeMetric] = []
    for entry in entries:
        table = {"name": entry} if isinstance(entry, str) else dict(entry)
        metric = _make_metric(table, functions, give_sample)
        if metric.name in [other.name for other in members]:
            raise UserError(
                f"every metric must have its own name, and two are called {metric.name!r}; give one of them a "
                f'label: {{name = "{table["name"]}", label = "…"}}'
            )
        members.append(metric)
    return MetricSet(tuple(members), is_given=True)


def choose_column(table: Mapping[str, Any]) -> str:
    """Return what a metric is called in metrics.jsonl: its label, or the last word of its name.

    Raises:
        UserError: If it is not a word, or would be mistaken for the loss.

    >>> choose_column({"name": "my.package:brier"}), choose_column({"name": "f1", "label": "micro_f1"})
    ('brier', 'micro_f1')
    """
    column = table.get("label") or re.split(r"[:.]", str(table["name"]))[-1]
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", column) or column in ("loss", "size"):
        raise UserError(
            f"a metric must be called by a word of letters, digits and _, and not 'loss', got {column!r}; give it a "
            'label: {name = "…", label = "…"}'
        )
    return column


def _make_metric(
    table: Mapping[str, Any], functions: Mapping[str, MetricFunction], give_sample: Callable[[], tuple[Any, Any]]
) -> SummedMetric | WholeMetric:
    name, column, better = table["name"], choose_column(table), table.get("higher_is_better")
    options = {key: value for key, value in table.items() if key not in _OWN_KEYS}
    if name in functions or ":" in name:
        if options:
            raise UserError(f"the function {name!r} takes no options, got {', '.join(options)}")
        function = functions[name] if name in functions else import_object(name)
        if not callable(function):
            raise UserError(f"{name} must be a function of outputs and labels, got {type(function).__name__}")
        return WholeMetric(column, MetricTraits(better is not False, is_share=False), function)
    if (summed := find_summed_metric(name)) is not None:
        if options or better not in (None, summed.traits.higher_is_better):
            raise UserError(f"the metric {name!r} has no options, got {', '.join(options) or 'higher_is_better'}")
        return SummedMetric(column, summed.traits, summed.count, summed.finish)
    return make_torchmetrics_metric(name, column, options, infer_task(*give_sample()), better)
