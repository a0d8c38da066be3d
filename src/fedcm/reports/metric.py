"""The metric that runs are compared by: their headline metric, such as test accuracy, or else the test loss."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from fedcm.system.formatting import format_hundredths


@final
@dataclass(frozen=True)
class Metric:
    """Where a metric is stored and how it is shown."""

    name: str  # as in `evaluation.metrics`; "loss" for the loss
    higher_is_better: bool
    is_share: bool = False  # between 0 and 1, and shown in percent
    over_clients: bool = False  # the mean over clients on their own test data, instead of the value on the test data

    @property
    def column(self) -> str:
        """Its key in `metrics.jsonl` and in a curve."""
        return f"clients_{self.name}_mean" if self.over_clients else f"test_{self.name}"

    @property
    def title(self) -> str:
        """What texts call it."""
        return f"mean {self.name} over clients" if self.over_clients else f"test {self.name}"

    @property
    def short_title(self) -> str:
        """What tables call it: without "test"."""
        return self.title if self.over_clients or not self.is_share else self.name

    @property
    def scale(self) -> float:
        """The factor from stored to shown values."""
        return 100.0 if self.is_share else 1.0

    @property
    def unit(self) -> str:
        """The percent sign of a share, else the empty string."""
        return "%" if self.is_share else ""

    @property
    def caption(self) -> str:
        """The title with its unit."""
        return f"{self.title} in %" if self.is_share else self.title

    @property
    def extreme(self) -> str:
        """The adjective for the best value."""
        return "highest" if self.higher_is_better else "lowest"

    @property
    def file_name(self) -> str:
        """The part of a file's name that stands for the metric."""
        name = "test-loss" if self.name == "loss" and not self.over_clients else self.name
        return f"clients-{name}" if self.over_clients else name

    def to_gain(self, value: float) -> float:
        """Return a shown value with its sign chosen such that more is better."""
        return value if self.higher_is_better else -value

    def format(self, value: float) -> str:
        """Format a shown value.

        >>> ACCURACY.format(51.245), LOSS.format(0.1), LOSS.format(1234.56)
        ('51.24', '0.1000', '1235')
        """
        return format_hundredths(value) if self.is_share else f"{value:#.4g}".removesuffix(".")

    def format_deviation(self, value: float) -> str:
        """Format a standard deviation of shown values.

        >>> ACCURACY.format_deviation(1.234), LOSS.format_deviation(0.0123)
        ('1.23', '0.012')
        """
        return format_hundredths(value) if self.is_share else f"{value:#.2g}".removesuffix(".")

    def format_with_unit(self, value: float) -> str:
        """Format a shown value; a share with its percent sign."""
        return f"{self.format(value)} %" if self.is_share else self.format(value)

    def describe_best(self) -> str:
        """Return what a row with the best value is or has.

        >>> ACCURACY.describe_best(), LOSS.describe_best()
        ('is the most accurate', 'has the lowest test loss')
        """
        return "is the most accurate" if self == ACCURACY else f"has the {self.extreme} {self.title}"

    def format_direction(self) -> str:
        """Describe the metric and its direction, for the line below a table.

        >>> ACCURACY.format_direction(), LOSS.format_direction()
        ('accuracy in percent', 'test loss, lower is better')
        """
        if self.is_share:
            return f"{self.short_title} in percent"
        return f"{self.title}, {'higher' if self.higher_is_better else 'lower'} is better"


ACCURACY = Metric("accuracy", higher_is_better=True, is_share=True)
LOSS = Metric("loss", higher_is_better=False)


def find_headline(summary: Mapping[str, Any]) -> Metric | None:
    """Return the headline metric of a run: the first of `metrics` in its summary; None if it has none.

    Runs that are evaluated at their clients only have the mean over clients. Summaries of older runs have only
    `accuracy`.
    """
    table = summary.get("metrics")
    for name, values in table.items() if isinstance(table, dict) else ():
        if isinstance(values, dict):
            return make_metric(name, values)
    if summary.get("accuracy"):
        return ACCURACY
    return find_headline_over_clients(summary) if not summary.get("test_losses") else None


def find_headline_over_clients(summary: Mapping[str, Any]) -> Metric | None:
    """Return the metric of a run's clients, as a mean over them; None if the run did not evaluate its clients."""
    clients = summary.get("clients")
    if not isinstance(clients, dict) or "mean_last" not in clients:
        return None
    return make_metric(str(clients["metric"]), clients, over_clients=True)


def make_metric(name: str, traits: Mapping[str, Any], *, over_clients: bool = False) -> Metric:
    """Return the metric of this name with the direction and range that a summary records."""
    higher, share = traits.get("higher_is_better") is not False, traits.get("is_share") is True
    return Metric(name, higher, share, over_clients)


def read_scores(summary: Mapping[str, Any], metric: Metric) -> dict[str, float] | None:
    """Return what a summary records of a metric on the test data or over clients; None if it has no such metric."""
    if metric.over_clients:
        clients = summary.get("clients") or {}
        values = clients if clients.get("metric") == metric.name and "mean_last" in clients else None
    elif metric == ACCURACY:
        values = summary.get("accuracy")
    elif metric == LOSS:
        values = summary.get("test_losses")
    else:
        values = (summary.get("metrics") or {}).get(metric.name)
    return values if isinstance(values, dict) else None


def read_validation_scores(summary: Mapping[str, Any], metric: Metric) -> dict[str, float] | None:
    """Return what a summary records of a metric on the validation data; None if there are none."""
    table = None if metric.over_clients else summary.get("validation")
    values = table.get(metric.name) if isinstance(table, dict) else None
    return values if isinstance(values, dict) else None


def choose_metric(runs: Iterable[tuple[Metric | None, object]]) -> Metric:
    """Return the metric that all evaluated runs have: their common headline if possible, else the test loss.

    If a run is evaluated at its clients only, so are the others that it is compared with.

    Args:
        runs: For each run its headline metric and its test loss; a false value means that it has none.
    """
    evaluated = [(headline, loss) for headline, loss in runs if headline or loss]
    headlines = [headline for headline, _ in evaluated if headline]
    if at_clients := next((headline for headline in headlines if headline.over_clients), None):
        return at_clients
    if headlines and len(headlines) == len(evaluated) and len(set(headlines)) == 1:
        return headlines[0]
    if evaluated and (all(loss for _, loss in evaluated) or not headlines):
        return LOSS
    return headlines[0] if headlines else ACCURACY


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
