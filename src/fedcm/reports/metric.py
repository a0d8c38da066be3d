"""What runs are compared by: the test accuracy, or where labels are no classes the test loss."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, final

from fedcm.reports.rounding import hundredths


@final
@dataclass(frozen=True)
class Metric:
    column: Literal["test_accuracy", "test_loss"]  # of a curve
    summary: Literal["accuracy", "test_losses"]  # of a summary
    title: str
    scale: float  # from a run's numbers to those that are shown
    higher_is_better: bool

    @property
    def caption(self) -> str:
        return f"{self.title} in %" if self is ACCURACY else self.title

    @property
    def axis(self) -> str:
        return f"{self.title}, %" if self is ACCURACY else self.title

    @property
    def extreme(self) -> str:
        """What the best of several is called."""
        return "highest" if self.higher_is_better else "lowest"

    @property
    def file_name(self) -> str:
        return "accuracy" if self is ACCURACY else "test-loss"

    def gain(self, value: float) -> float:
        """A shown number so that more is better."""
        return value if self.higher_is_better else -value

    def write(self, value: float) -> str:
        """A shown number as a text.

        >>> ACCURACY.write(51.245), LOSS.write(0.1), LOSS.write(1234.56)
        ('51.24', '0.1000', '1235')
        """
        return hundredths(value) if self is ACCURACY else f"{value:#.4g}".removesuffix(".")

    def write_deviation(self, value: float) -> str:
        """
        >>> ACCURACY.write_deviation(1.234), LOSS.write_deviation(0.0123)
        ('1.23', '0.012')
        """
        return hundredths(value) if self is ACCURACY else f"{value:#.2g}".removesuffix(".")

    def write_with_unit(self, value: float) -> str:
        return f"{self.write(value)} %" if self is ACCURACY else self.write(value)


ACCURACY = Metric("test_accuracy", "accuracy", "test accuracy", 100.0, higher_is_better=True)
LOSS = Metric("test_loss", "test_losses", "test loss", 1.0, higher_is_better=False)
METRICS = (ACCURACY, LOSS)


def choose_metric(found: Iterable[tuple[object, object]]) -> Metric:
    """The metric that runs can be compared by, from what each has of accuracy and test loss.

    Accuracy, unless some evaluated run has none while all of them have a test loss.
    """
    evaluated = [(accuracy, loss) for accuracy, loss in found if accuracy or loss]
    lacking = any(not accuracy for accuracy, _ in evaluated)
    if lacking and (all(loss for _, loss in evaluated) or not any(accuracy for accuracy, _ in evaluated)):
        return LOSS
    return ACCURACY


def write_averaged_rounds(rounds: Iterable[float | None]) -> str:
    """Which rounds `mean_last` is over, of runs that each average so many.

    >>> write_averaged_rounds([100, 100]), write_averaged_rounds([1]), write_averaged_rounds([20, 15, 100])
    ('mean of the last 100 rounds', 'mean of the last round', 'mean of the last 15, 20 or 100 rounds')
    """
    known = sorted({int(count) for count in rounds if count is not None})
    if not known:
        return "mean of the last rounds"
    if known == [1]:
        return "mean of the last round"
    *first, last = map(str, known)
    counts = f"{', '.join(first)} or {last}" if first else last
    return f"mean of the last {counts} rounds"


def read_scores(metrics: Iterable[dict[str, Any]], metric: Metric) -> tuple[list[int], list[float]]:
    """Rounds done, and the metric as it is shown, at every evaluation."""
    tested = [line for line in metrics if line.get(metric.column) is not None]
    return [line["round"] + 1 for line in tested], [metric.scale * line[metric.column] for line in tested]
