"""The results of `fedcm theory rates` as rows of text, as a sheet (LaTeX, CSV) and as JSON."""

import math
from collections.abc import Sequence
from typing import Any

from fedcm.reports.sheet import Sheet
from fedcm.theory.rates.bound_ratios import compare_with_bounds
from fedcm.theory.rates.experiment import LABELS
from fedcm.theory.rates.measurement import RateRow
from fedcm.theory.rates.ratios import AlgorithmComparison

HEAD = ("experiment", "case", "against", "algorithm", "error, first → last", "measured", "95 %", "proven", "verdict")


def make_sheet(rows: Sequence[RateRow]) -> Sheet:
    """Make the sheet of all rows, with the command that repeats each."""
    return Sheet(
        "theory-rates",
        "Measured against proven exponents, with 95 % intervals over replicates",
        (*HEAD, "command"),
        tuple((*format_row(row), f"fedcm theory rates --only {row.experiment.name}") for row in rows),
        texts=4,
    )


def format_row(row: RateRow) -> tuple[str, ...]:
    """Return the cells of a row, in the order of `HEAD`."""
    errors, points = row.errors, row.experiment.points
    return (
        row.experiment.name,
        row.experiment.case,
        f"{row.experiment.varied} = {points[0].value:g} … {points[-1].value:g}",
        LABELS[row.algorithm],
        f"{errors[0]:.2g} → {errors[-1]:.2g}",
        f"{row.slope.value:+.2f}",
        f"{row.slope.low:+.2f} … {row.slope.high:+.2f}",
        describe_proven(row),
        row.verdict,
    )


def describe_proven(row: RateRow) -> str:
    """Return the proven exponent or claim as text, in brackets the exponent with the logarithm."""
    if row.proven is None:
        return "–"
    if row.proven == "grows":
        return "grows"
    log = row.log_exponent
    bracket = "" if log is None or abs(log - row.proven) < 0.005 else f" ({log:+.2f})"
    return f"{row.proven:+g}{bracket}"


def row_to_json(row: RateRow, comparisons: Sequence[AlgorithmComparison] = ()) -> dict[str, Any]:
    """Return a row as JSON.

    Where FedAvg is compared with FedCM, FedAvg's `over_fedcm` holds [ratio, low, high] of the errors at every point.
    """
    experiment = row.experiment
    over_fedcm = [comparison.ratios for comparison in comparisons if comparison.fedavg is row]
    bounds = compare_with_bounds(row) if row.algorithm == "fedcm" else []
    return {
        "experiment": experiment.name,
        "case": experiment.case,
        "varied": experiment.varied,
        "steps": experiment.steps,
        "note": experiment.note,
        "algorithm": row.algorithm,
        "values": experiment.values,
        "errors": [_finite_or_none(error) for error in row.errors],
        "standard_errors": [_finite_or_none(error) for error in row.standard_errors],
        "replicates": [len(result.errors) for result in row.results],
        "client_lr": [result.best.client_lr for result in row.results],
        "global_lr": [result.best.global_lr for result in row.results],
        "proximal": [result.best.proximal for result in row.results],
        "at_the_edge_of_the_grid": [list(result.edges) for result in row.results],
        "slope": _finite_or_none(row.slope.value),
        "interval": [_finite_or_none(row.slope.low), _finite_or_none(row.slope.high)],
        "slopes_between": [_finite_or_none(value) for value in row.slopes_between],
        "proven": row.proven,
        "proven_with_log": row.log_exponent,
        "verdict": row.verdict,
        "gradient_bound": [_finite_or_none(result.largest_gradient) for result in row.results],
        "stated_bounds": [_finite_or_none(point.stated) for point in bounds],
        "explicit_bounds": [_finite_or_none(point.explicit) for point in bounds],
        "over_fedcm": [[_finite_or_none(end) for end in ratio] for ratios in over_fedcm for ratio in ratios],
    }


def _finite_or_none(value: float | None) -> float | None:
    """Replace infinity and NaN, which JSON does not have and which diverged runs produce."""
    return value if value is not None and math.isfinite(value) else None
