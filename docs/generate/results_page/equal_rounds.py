"""Settings I and II after equally many rounds: the mean accuracy over rounds that the runs of both have."""

import statistics
from collections.abc import Sequence

from fedcm.reports.digest import Digest
from fedcm.reports.groups import get_algorithm_title
from fedcm.system.formatting import format_signed
from results_page.cells import write_table
from results_page.study_runs import Results, StudyCell, StudyRuns

_WINDOW = (100, 200)  # rounds that both settings have
_HEADER = ("setting I", "setting II", "change in points", "n in I and II")


def write_older_window(results: Results) -> str:
    """Return what every algorithm loses from setting I to II in the older runs of Table 1; empty without runs."""
    rows = []
    for cell, other in _list_pairs(results["table1"].older, results["table1"].cells):
        rows.append(_write_row(get_algorithm_title(cell.algorithm), cell.runs, other.runs))
        if cell.algorithm == "fedcm":
            rows += _write_equal_alpha(cell.runs, results["table3"])
    return _write_table("on Dirichlet", ("algorithm", *_HEADER), rows)


def write_window(runs: StudyRuns) -> str:
    """Return what every algorithm loses from setting I to II, by split; empty without runs."""
    rows = [
        [cell.labels["split"], *_write_row(get_algorithm_title(cell.algorithm), cell.runs, other.runs)]
        for cell, other in _list_pairs(runs.cells, runs.cells)
    ]
    return _write_table("by split", ("split", "algorithm", *_HEADER), rows, texts=2)


def _list_pairs(first: Sequence[StudyCell], second: Sequence[StudyCell]) -> list[tuple[StudyCell, StudyCell]]:
    """Return the cells of setting I, each with the same cell of setting II, if both have runs."""
    return [
        (cell, other)
        for cell in first
        for other in second
        if cell.labels.get("setting") == "I"
        and other.algorithm == cell.algorithm
        and other.labels == {**cell.labels, "setting": "II"}
        and cell.runs
        and other.runs
    ]


def _write_table(place: str, header: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 1) -> str:
    text = f"Mean accuracy in % over rounds {_WINDOW[0] + 1} to {_WINDOW[1]} of both settings, {place}:"
    return f"{text}\n\n{write_table(header, rows, texts)}" if rows else ""


def _write_equal_alpha(runs: Sequence[Digest], alphas: StudyRuns) -> list[list[str]]:
    alpha = runs[0].experiment["algorithm"]["alpha"]
    cell = alphas.find("fedcm", f"{alpha:g}")
    return [_write_row(f"FedCM, α {alpha:g} in both", runs, cell.runs)] if cell and cell.runs else []


def _write_row(label: str, first: Sequence[Digest], second: Sequence[Digest]) -> list[str]:
    before, after = _average(first), _average(second)
    if before is None or after is None:
        return [label, _format(before), _format(after), "–", f"{len(first)} and {len(second)}"]
    return [label, _format(before), _format(after), format_signed(after - before), f"{len(first)} and {len(second)}"]


def _average(runs: Sequence[Digest]) -> float | None:
    """Return the mean in % over the window; None if a run diverged."""
    if any(run.divergence_round is not None for run in runs):
        return None
    values = [
        100 * value
        for run in runs
        for done, value in zip(run.curve.round, run.curve.test_accuracy, strict=True)
        if value is not None and _WINDOW[0] < done <= _WINDOW[1]
    ]
    return statistics.fmean(values) if values else None


def _format(value: float | None) -> str:
    return "diverged" if value is None else f"{value:.2f}"
