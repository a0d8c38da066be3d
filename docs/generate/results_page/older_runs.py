"""Runs of Table 1 that are shorter than planned now: their table, and a comparison of settings I and II."""

import statistics
from collections.abc import Sequence

from fedcm.reports.digest import Digest
from fedcm.reports.groups import get_algorithm_title
from fedcm.system.formatting import format_signed
from results_page.cells import join_parts, write_cpu_note, write_table
from results_page.study_parts import write_caption, write_figure_link, write_grid
from results_page.study_runs import Results, StudyRuns

_WINDOW = (100, 200)  # rounds that both settings have


def write_older_part(results: Results) -> str:
    """Return the tables of the older runs of Table 1; empty if there are none."""
    runs = results["table1"]
    if not runs.older:
        return ""
    rounds = ", ".join(str(count) for count in sorted({cell.rounds for cell in runs.older}))
    return join_parts(
        f"### Older runs with {rounds} rounds",
        "These cells have no runs of the planned length yet, and are not mixed with the others.",
        write_caption(runs.older),
        write_grid(runs.older),
        write_cpu_note(run for cell in runs.older for run in cell.runs),
        write_figure_link("table1-older", "Accuracy against rounds for five algorithms, in the older runs"),
        write_window(results),
    )


def write_window(results: Results) -> str:
    """Return what every algorithm loses from setting I to II, over rounds that both have; empty without runs."""
    first, second = results["table1"].older, results["table1"].cells
    rows = []
    for cell in first:
        same = [
            one for one in second if one.algorithm == cell.algorithm and one.labels == {**cell.labels, "setting": "II"}
        ]
        for other in same:
            if other.runs and cell.labels.get("setting") == "I":
                rows.append(_write_row(get_algorithm_title(cell.algorithm), cell.runs, other.runs))
                if cell.algorithm == "fedcm":
                    rows += _write_equal_alpha(cell.runs, results["table3"])
    if not rows:
        return ""
    text = f"Mean accuracy in % over rounds {_WINDOW[0] + 1} to {_WINDOW[1]} of both settings, on Dirichlet:"
    header = ("algorithm", "setting I", "setting II", "change in points", "n in I and II")
    return join_parts(text, write_table(header, rows))


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
