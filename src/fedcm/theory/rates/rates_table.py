"""What `fedcm theory rates` found: a table for the terminal, the same in LaTeX and CSV, and as JSON."""

import math
from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from fedcm.reports.sheet import Sheet
from fedcm.theory.rates.measure import Row
from fedcm.theory.rates.points import LABELS
from fedcm.theory.rates.rates_bounds import beside
from fedcm.theory.rates.ratios import Comparison
from fedcm.theory.rates.slopes import TOLERANCE

_HEAD = ("experiment", "case", "against", "algorithm", "error, first → last", "measured", "95 %", "proven", "verdict")


def printed(rows: Sequence[Row]) -> None:
    table = Table(box=SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in _HEAD:
        numbers = heading in ("measured", "proven")
        table.add_column(heading, justify="right" if numbers else "left", no_wrap=heading != "case")
    for number, row in enumerate(rows):
        first = number == 0 or rows[number - 1].experiment.name != row.experiment.name
        words = _words(row)
        table.add_row(*(words if first else ("", "", "", *words[3:])), style=_STYLE.get(row.verdict))
    wide = max(Console().width, 140)  # a table that wraps cannot be read; a pager or a wider window can show it
    Console(width=wide).print(table)
    print(
        f"exponents of a power law; verdicts allow ±{TOLERANCE} for what O hides; in brackets: with the η_g's logarithm"
    )


_STYLE = {"does not show": "yellow", "cannot tell": "yellow", "diverged": "red"}


def sheet(rows: Sequence[Row]) -> Sheet:
    return Sheet(
        "theory-rates",
        "Measured against proven exponents, with 95 % intervals over replicates",
        (*_HEAD, "command"),
        tuple((*_words(row), f"fedcm theory rates --only {row.experiment.name}") for row in rows),
        texts=4,
    )


def _words(row: Row) -> tuple[str, ...]:
    errors, points = row.errors, row.experiment.points
    return (
        row.experiment.name,
        row.experiment.case,
        f"{row.experiment.varied} = {points[0].value:g} … {points[-1].value:g}",
        LABELS[row.algorithm],
        f"{errors[0]:.2g} → {errors[-1]:.2g}",
        f"{row.slope.value:+.2f}",
        f"{row.slope.low:+.2f} … {row.slope.high:+.2f}",
        proven_words(row),
        row.verdict,
    )


def proven_words(row: Row) -> str:
    if row.proven is None:
        return "–"
    if row.proven == "grows":
        return "grows"
    log = "" if row.with_log is None or abs(row.with_log - row.proven) < 0.005 else f" ({row.with_log:+.2f})"
    return f"{row.proven:+g}{log}"


def print_comparisons(compared: Sequence[Comparison]) -> None:
    """FedAvg's error over FedCM's, where both were measured."""
    for one in compared:
        experiment, ratios = one.fedcm.experiment, one.ratios
        points = zip(experiment.values, ratios, strict=True)
        told = ", ".join(f"{r.value:.2f} [{r.low:.2f}, {r.high:.2f}] at {experiment.varied} = {v:g}" for v, r in points)
        print(f"{experiment.name}: FedAvg's error over FedCM's is {told}")


def as_json(row: Row, compared: Sequence[Comparison] = ()) -> dict[str, Any]:
    """FedAvg's rows hold its error over FedCM's, [value, low, high] at every point, where the two are compared."""
    experiment = row.experiment
    over = [one.ratios for one in compared if one.fedavg is row]
    bounds = beside(row) if row.algorithm == "fedcm" else []
    return {
        "experiment": experiment.name,
        "case": experiment.case,
        "varied": experiment.varied,
        "steps": experiment.steps,
        "note": experiment.note,
        "algorithm": row.algorithm,
        "values": experiment.values,
        "errors": [_number(error) for error in row.errors],
        "standard_errors": [_number(error) for error in row.standard_errors],
        "replicates": [len(found.errors) for found in row.found],
        "client_lr": [found.chosen.client_lr for found in row.found],
        "global_lr": [found.chosen.global_lr for found in row.found],
        "proximal": [found.chosen.proximal for found in row.found],
        "at_the_edge_of_the_grid": [list(found.edges) for found in row.found],
        "slope": _number(row.slope.value),
        "interval": [_number(row.slope.low), _number(row.slope.high)],
        "slopes_between": [_number(value) for value in row.between],
        "proven": row.proven,
        "proven_with_log": row.with_log,
        "verdict": row.verdict,
        "gradient_bound": [_number(found.steepest) for found in row.found],
        "stated_bounds": [_number(one.stated) for one in bounds],
        "explicit_bounds": [_number(one.explicit) for one in bounds],
        "over_fedcm": [[_number(end) for end in ratio] for ratios in over for ratio in ratios],
    }


def _number(value: float | None) -> float | None:
    """JSON knows neither infinity nor what is not a number: of a run that diverged there is nothing to tell."""
    return value if value is not None and math.isfinite(value) else None
