"""What `fedcm theory rates` found, as the Markdown of docs/theory.md: an experiment a row, algorithms as columns."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby

from fedcm.theory.rates.measure import Row
from fedcm.theory.rates.points import LABELS
from fedcm.theory.rates.rates_bounds import beside
from fedcm.theory.rates.rates_table import proven_words
from fedcm.theory.rates.ratios import Comparison, compare

_COMMAND = "`fedcm theory rates --only …`"
_MARKS = {"does not show": " ✗", "faster than proven": " ⇓", "cannot tell": " ?", "diverged": " (diverged)"}


def markdown(rows: Sequence[Row]) -> str:
    """Up to four tables: exponents, the number of clients, FedAvg over FedCM, bounds beside errors."""
    exponents = [row for row in rows if row.experiment.steps != "averaging"]
    clients = [row for row in rows if row.experiment.varied == "N"]
    compared = compare(rows)
    fedcm = [row for row in rows if row.algorithm == "fedcm" and row.proven is not None]
    tables = [
        *([_exponents(exponents)] if exponents else []),
        *([_clients(clients)] if clients else []),
        *([_compared(compared)] if compared else []),
        *([_bounds(fedcm)] if fedcm else []),
    ]
    return "\n".join(tables)


def _exponents(rows: Sequence[Row]) -> str:
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
                against(first),
                _minus(proven_words(first)),
                *(_cell(own.get(algorithm)) for algorithm in LABELS),
                first.verdict,
                ", ".join(_minus(f"{value:+.2f}" if abs(value) < 9.95 else f"{value:+.1f}") for value in first.between),
                "; ".join(filter(None, map(_at_edges, own.values()))) or "–",
            )
        )
    return _table(head, body, "lllrrrrrlll")


def _clients(rows: Sequence[Row]) -> str:
    values = [f"N = {_power(value)}" for value in rows[0].experiment.values]
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
                *(f"{_power(e)} ± {s / e:.0%}" for e, s in zip(errors, row.standard_errors, strict=True)),
                f"{errors[-1] / errors[0]:.2g} ×"
                if errors[-1] < 99.5 * errors[0]
                else f"{errors[-1] / errors[0]:.0f} ×",
                _interval(row),
                "grows" if row.proven == "grows" else "does not grow",
                row.verdict,
                _at_edges(row).removeprefix(LABELS[row.algorithm]).strip() or "–",
            )
        )
    return _table(head, body, "ll" + "r" * (len(values) + 2) + "lll")


def _compared(compared: Sequence[Comparison]) -> str:
    head = (_COMMAND, "against", "FedCM's errors", "FedAvg's error ÷ FedCM's [95 %]", "best η_l at its grid's edge")
    body = []
    for one in compared:
        values = ", ".join(f"{value:g}" for value in one.fedcm.experiment.values)
        body.append(
            (
                f"`{one.fedcm.experiment.name}`",
                f"{one.fedcm.experiment.varied} = {values}",
                ", ".join(_power(error) for error in one.fedcm.errors),
                ", ".join(f"{ratio.value:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]" for ratio in one.ratios),
                "; ".join(filter(None, map(_at_edges, (one.fedcm, one.fedavg)))) or "–",
            )
        )
    return _table(head, body, "llrrl")


def _bounds(rows: Iterable[Row]) -> str:
    head = (_COMMAND, "against", "FedCM's error", "stated bound", "÷ error", "explicit bound ÷ error")
    body = []
    for row in rows:
        found = beside(row)
        ratios = [one.stated / one.error for one in found]
        explicit = [one.explicit / one.error for one in found if one.explicit is not None]
        ends = found[0], found[-1]
        body.append(
            (
                f"`{row.experiment.name}`",
                against(row),
                " … ".join(_power(one.error) for one in ends),
                " … ".join(_power(one.stated) for one in ends),
                _range(ratios),
                _range(explicit) if explicit else "–",
            )
        )
    return _table(head, body, "llrrrr")


def against(row: Row) -> str:
    """
    >>> from fedcm.theory.rates.plan import experiments
    >>> from fedcm.theory.rates.slopes import Slope
    >>> against(Row(experiments()[0], "fedcm", [], Slope(0, 0, 0), -1, None, "agrees"))
    'T = 125 … 2000'
    """
    values = row.experiment.values
    return f"{row.experiment.varied} = {values[0]:g} … {values[-1]:g}"


def _cell(row: Row | None) -> str:
    return "–" if row is None else _interval(row) + _MARKS.get(row.verdict, "")


def _interval(row: Row) -> str:
    digits = 2 if abs(row.slope.value) < 9.95 else 1
    value, low, high = (_minus(f"{number:+.{digits}f}") for number in row.slope)
    return f"{value} [{low}, {high}]"


def _at_edges(row: Row) -> str:
    """Such as `FedAvg 2 of 5 at η = 1/L`."""
    counts = Counter(edge for found in row.found for edge in found.edges)
    told = [f"{count} of {len(row.found)} at {edge}" for edge, count in counts.items()]
    return f"{LABELS[row.algorithm]} {', '.join(told)}" if told else ""


def _range(numbers: Sequence[float]) -> str:
    low, high = (_power(number) for number in (min(numbers), max(numbers)))
    return low if low == high else f"{low} to {high}"


def _power(number: float) -> str:
    """Two digits: 0.0019 as 1.9·10⁻³, 47 as 47, 10000 as 10⁴.

    >>> _power(0.00194), _power(47.2), _power(1e4), _power(0.13)
    ('1.9·10⁻³', '47', '10⁴', '0.13')
    """
    if 0.1 <= number < 99.5:
        return f"{number:.2g}"
    digits, power = f"{number:.1e}".split("e")
    raised = f"10{str(int(power)).translate(_RAISED)}"
    return raised if digits == "1.0" else f"{digits}·{raised}"


_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def _minus(text: str) -> str:
    return text.replace("-", "−")


def _table(head: Sequence[str], body: Sequence[Sequence[str]], sides: str) -> str:
    rule = "|".join("---:" if side == "r" else "---" for side in sides)
    return "\n".join([f"| {' | '.join(head)} |", f"|{rule}|", *(f"| {' | '.join(row)} |" for row in body)]) + "\n"
