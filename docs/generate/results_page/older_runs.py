"""Runs of Table 1 that are shorter than planned now."""

from results_page.cells import explain_marks, join_parts
from results_page.equal_rounds import write_older_window
from results_page.study_parts import write_caption, write_figure_link, write_grid
from results_page.study_runs import Results


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
        explain_marks(write_grid(runs.older), [run for cell in runs.older for run in cell.runs]),
        write_figure_link("table1-older", "Accuracy against rounds for five algorithms, in the older runs"),
        write_older_window(results),
    )
