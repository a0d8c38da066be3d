"""Rounds and bytes until the runs of a study first reached an accuracy."""

from collections.abc import Sequence

from fedcm.reports.groups import get_algorithm_title
from fedcm.system.formatting import format_bytes
from results_page.cells import NOT_PLANNED, join_parts, write_table
from results_page.study_runs import StudyCell, StudyRuns


def write_target_costs(runs: StudyRuns, targets: Sequence[float]) -> str:
    """Return the cost of some accuracies in every cell with runs; empty without runs.

    Args:
        runs: The study.
        targets: The accuracies, from 0 to 1.
    """
    cells = [cell for cell in runs.cells if cell.runs]
    columns = list(dict.fromkeys(cell.column for cell in cells))
    ordered = sorted(cells, key=lambda cell: columns.index(cell.column))
    rows = [
        [cell.column, get_algorithm_title(cell.algorithm), *(_format_cost(cell, target) for target in targets)]
        for cell in ordered
    ]
    if not rows:
        return ""
    text = (
        "Rounds until an evaluation (every 10 rounds) first had an accuracy, and bytes of all clients in both "
        "directions until then. If only some seeds reached it, the mean is over these, and so too small. The first "
        "time of a noisy curve is early, too."
    )
    return join_parts(text, write_table(("cell", "algorithm", *(f"{target:.0%}" for target in targets)), rows, texts=2))


def _format_cost(cell: StudyCell, target: float) -> str:
    cost = cell.entry.find_cost(target) if cell.entry else None
    if cost is None:
        return NOT_PLANNED
    share = "" if cost.reached == cost.runs else f" ({cost.reached} of {cost.runs})"
    return f"{cost.rounds:.0f}, {format_bytes(cost.bytes)}{share}"
