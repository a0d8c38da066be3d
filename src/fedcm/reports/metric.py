"""The metric that runs are compared by: test accuracy, or test loss if the labels are not classes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

from fedcm.system.formatting import format_hundredths


@final
@dataclass(frozen=True)
class Metric:
    """Where a metric is stored and how it is shown."""

    column: Literal["test_accuracy", "test_loss"]  # in `metrics.jsonl` and in a curve
    summary: Literal["accuracy", "test_losses"]  # in `summary.json`
    title: str
    scale: float  # factor from stored to shown values
    higher_is_better: bool

    @property
    def caption(self) -> str:
        """The title with its unit."""
        return f"{self.title} in %" if self is ACCURACY else self.title

    @property
    def extreme(self) -> str:
        """The adjective for the best value."""
        return "highest" if self.higher_is_better else "lowest"

    @property
    def file_name(self) -> str:
        """The part of a file's name that stands for the metric."""
        return "accuracy" if self is ACCURACY else "test-loss"

    def to_gain(self, value: float) -> float:
        """Return a shown value with its sign chosen such that more is better."""
        return value if self.higher_is_better else -value

    def format(self, value: float) -> str:
        """Format a shown value.

        >>> ACCURACY.format(51.245), LOSS.format(0.1), LOSS.format(1234.56)
        ('51.24', '0.1000', '1235')
        """
        return format_hundredths(value) if self is ACCURACY else f"{value:#.4g}".removesuffix(".")

    def format_deviation(self, value: float) -> str:
        """Format a standard deviation of shown values.

        >>> ACCURACY.format_deviation(1.234), LOSS.format_deviation(0.0123)
        ('1.23', '0.012')
        """
        return format_hundredths(value) if self is ACCURACY else f"{value:#.2g}".removesuffix(".")

    def format_with_unit(self, value: float) -> str:
        """Format a shown value; an accuracy with its percent sign."""
        return f"{self.format(value)} %" if self is ACCURACY else self.format(value)


ACCURACY = Metric("test_accuracy", "accuracy", "test accuracy", 100.0, higher_is_better=True)
LOSS = Metric("test_loss", "test_losses", "test loss", 1.0, higher_is_better=False)
METRICS = (ACCURACY, LOSS)


def choose_metric(runs: Iterable[tuple[object, object]]) -> Metric:
    """Return the metric that all evaluated runs have: accuracy if possible, else test loss.

    Args:
        runs: For each run its accuracy and its test loss; a false value means that it has none.
    """
    evaluated = [(accuracy, loss) for accuracy, loss in runs if accuracy or loss]
    lacking = any(not accuracy for accuracy, _ in evaluated)
    if lacking and (all(loss for _, loss in evaluated) or not any(accuracy for accuracy, _ in evaluated)):
        return LOSS
    return ACCURACY


def describe_averaged_rounds(counts: Iterable[float | None]) -> str:
    """Describe which rounds `mean_last` averages, for runs that each average the given number of rounds.

    >>> describe_averaged_rounds([100, 100]), describe_averaged_rounds([1]), describe_averaged_rounds([20, 15, 100])
    ('mean of the last 100 rounds', 'mean of the last round', 'mean of the last 15, 20 or 100 rounds')
    """
    known = sorted({int(count) for count in counts if count is not None})
    if not known:
        return "mean of the last rounds"
    if known == [1]:
        return "mean of the last round"
    *first, last = map(str, known)
    text = f"{', '.join(first)} or {last}" if first else last
    return f"mean of the last {text} rounds"


def read_evaluations(lines: Iterable[dict[str, Any]], metric: Metric) -> tuple[list[int], list[float]]:
    """Return the number of rounds done and the shown value at every evaluation in the lines of `metrics.jsonl`."""
    evaluated = [line for line in lines if line.get(metric.column) is not None]
    return [line["round"] + 1 for line in evaluated], [metric.scale * line[metric.column] for line in evaluated]


def find_divergence_round(outcome: str, rounds: int) -> int | None:
    """Return the round in which a run diverged; None if it did not.

    Args:
        outcome: The outcome in the run's summary.
        rounds: The number of completed rounds.
    """
    return rounds if outcome == "diverged" else None


def describe_divergence(rounds: Sequence[int | None]) -> str:
    """Describe in which rounds the runs of several seeds diverged; the empty string if none did.

    Reports show this text in place of every accuracy of a diverged run.

    >>> describe_divergence([175]), describe_divergence([175, 148])
    ('diverged (round 175)', 'diverged (rounds 175, 148)')
    >>> describe_divergence([175, None, None]), describe_divergence([None])
    ('diverged (round 175; 1 of 3 seeds)', '')
    """
    known = [str(round) for round in rounds if round is not None]
    if not known:
        return ""
    share = f"; {len(known)} of {len(rounds)} seeds" if len(known) < len(rounds) else ""
    return f"diverged (round{'s' if len(known) > 1 else ''} {', '.join(known)}{share})"
