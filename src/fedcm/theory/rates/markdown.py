"""The results of `fedcm theory rates` as the Markdown tables of docs/theory.md."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby

from fedcm.theory.rates.bound_ratios import compare_with_bounds
from fedcm.theory.rates.experiment import LABELS
from fedcm.theory.rates.measurement import RateRow
from fedcm.theory.rates.ratios import AlgorithmComparison, compare_algorithms
from fedcm.theory.rates.tables import describe_proven

_COMMAND = "`fedcm theory rates --only …`"
_MARKS = {"does not show": " ✗", "faster than proven": " ⇓", "cannot tell": " ?", "diverged": " (diverged)"}


def make_markdown(rows: Sequence[RateRow]) -> str:
    """Return up to four tables: exponents, number of clients, FedAvg against FedCM, bounds beside errors."""
    exponents = [row for row in rows if row.experiment.steps != "averaging"]
    clients = [row for row in rows if row.experiment.varied == "N"]
    comparisons = compare_algorithms(rows)
    fedcm = [row for row in rows if row.algorithm == "fedcm" and row.proven is not None]
    tables = [
        *([_make_exponent_table(exponents)] if exponents else []),
        *([_make_client_table(clients)] if clients else []),
        *([_make_comparison_table(comparisons)] if comparisons else []),
        *([_make_bound_table(fedcm)] if fedcm else []),
    ]
    return "\n".join(tables)


def _make_exponent_table(rows: Sequence[RateRow]) -> str:
    head = (_COMMAND, "case", "against", "proven (with log)", *LABELS.values())
    head = (*head, "verdict on FedCM", "FedCM from point to point", "best steps at their grid's edge")
    body = []
    for name, group in groupby(rows, lambda row: row.experiment.name):
        own = {row.algorithm: row for row in group}
        first = own["fedcm"]
        body.append(
            (
                f"`{name}`",
                first.experiment.case,
                describe_range(first),
                _use_minus_sign(describe_proven(first)),
                *(_format_cell(own.get(algorithm)) for algorithm in LABELS),
                first.verdict,
                ", ".join(
                    _use_minus_sign(f"{value:+.2f}" if abs(value) < 9.95 else f"{value:+.1f}")
                    for value in first.slopes_between
                ),
                "; ".join(filter(None, map(_describe_edges, own.values()))) or "–",
            )
        )
    return _make_table(head, body, "lllrrrrrlll")


def _make_client_table(rows: Sequence[RateRow]) -> str:
    values = [f"N = {_format_power(value)}" for value in rows[0].experiment.values]
    head = (
        _COMMAND,
        "algorithm",
        *values,
        "last / first",
        "exponent [95 %]",
        "claimed",
        "verdict",
        "at its grid's edge",
    )
    body = []
    for row in rows:
        errors = row.errors
        body.append(
            (
                f"`{row.experiment.name}`",
                LABELS[row.algorithm],
                *(f"{_format_power(e)} ± {s / e:.0%}" for e, s in zip(errors, row.standard_errors, strict=True)),
                f"{errors[-1] / errors[0]:.2g} ×"
                if errors[-1] < 99.5 * errors[0]
                else f"{errors[-1] / errors[0]:.0f} ×",
                _format_interval(row),
                "grows" if row.proven == "grows" else "does not grow",
                row.verdict,
                _describe_edges(row).removeprefix(LABELS[row.algorithm]).strip() or "–",
            )
        )
    return _make_table(head, body, "ll" + "r" * (len(values) + 2) + "lll")


def _make_comparison_table(comparisons: Sequence[AlgorithmComparison]) -> str:
    head = (_COMMAND, "against", "FedCM's errors", "FedAvg's error ÷ FedCM's [95 %]", "best η_l at its grid's edge")
    body = []
    for comparison in comparisons:
        values = ", ".join(f"{value:g}" for value in comparison.fedcm.experiment.values)
        body.append(
            (
                f"`{comparison.fedcm.experiment.name}`",
                f"{comparison.fedcm.experiment.varied} = {values}",
                ", ".join(_format_power(error) for error in comparison.fedcm.errors),
                ", ".join(f"{ratio.value:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]" for ratio in comparison.ratios),
                "; ".join(filter(None, map(_describe_edges, (comparison.fedcm, comparison.fedavg)))) or "–",
            )
        )
    return _make_table(head, body, "llrrl")


def _make_bound_table(rows: Iterable[RateRow]) -> str:
    head = (_COMMAND, "against", "FedCM's error", "stated bound", "÷ error", "explicit bound ÷ error")
    body = []
    for row in rows:
        points = compare_with_bounds(row)
        ratios = [point.stated / point.error for point in points]
        explicit = [point.explicit / point.error for point in points if point.explicit is not None]
        ends = points[0], points[-1]
        body.append(
            (
                f"`{row.experiment.name}`",
                describe_range(row),
                " … ".join(_format_power(end.error) for end in ends),
                " … ".join(_format_power(end.stated) for end in ends),
                _format_range(ratios),
                _format_range(explicit) if explicit else "–",
            )
        )
    return _make_table(head, body, "llrrrr")


def describe_range(row: RateRow) -> str:
    """Describe the range of the varied quantity.

    >>> from fedcm.theory.rates.plan import list_experiments
    >>> from fedcm.theory.rates.slopes import Slope
    >>> describe_range(RateRow(list_experiments()[0], "fedcm", [], Slope(0, 0, 0), -1, None, "agrees"))
    'T = 125 … 2000'
    """
    values = row.experiment.values
    return f"{row.experiment.varied} = {values[0]:g} … {values[-1]:g}"


def _format_cell(row: RateRow | None) -> str:
    return "–" if row is None else _format_interval(row) + _MARKS.get(row.verdict, "")


def _format_interval(row: RateRow) -> str:
    digits = 2 if abs(row.slope.value) < 9.95 else 1
    value, low, high = (_use_minus_sign(f"{number:+.{digits}f}") for number in row.slope)
    return f"{value} [{low}, {high}]"


def _describe_edges(row: RateRow) -> str:
    """Describe where the best step sizes are at an edge, e.g. `FedAvg 2 of 5 at η = 1/L`."""
    counts = Counter(edge for result in row.results for edge in result.edges)
    parts = [f"{count} of {len(row.results)} at {edge}" for edge, count in counts.items()]
    return f"{LABELS[row.algorithm]} {', '.join(parts)}" if parts else ""


def _format_range(numbers: Sequence[float]) -> str:
    low, high = (_format_power(number) for number in (min(numbers), max(numbers)))
    return low if low == high else f"{low} to {high}"


def _format_power(number: float) -> str:
    """Format with two digits: 0.0019 as 1.9·10⁻³, 47 as 47, 10000 as 10⁴.

    >>> _format_power(0.00194), _format_power(47.2), _format_power(1e4), _format_power(0.13)
    ('1.9·10⁻³', '47', '10⁴', '0.13')
    """
    if 0.1 <= number < 99.5:
        return f"{number:.2g}"
    digits, exponent = f"{number:.1e}".split("e")
    power_of_ten = f"10{str(int(exponent)).translate(_SUPERSCRIPTS)}"
    return power_of_ten if digits == "1.0" else f"{digits}·{power_of_ten}"


_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def _use_minus_sign(text: str) -> str:
    return text.replace("-", "−")


def _make_table(head: Sequence[str], body: Sequence[Sequence[str]], alignments: str) -> str:
    rule = "|".join("---:" if side == "r" else "---" for side in alignments)
    return "\n".join([f"| {' | '.join(head)} |", f"|{rule}|", *(f"| {' | '.join(row)} |" for row in body)]) + "\n"
