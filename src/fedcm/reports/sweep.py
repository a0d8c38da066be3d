"""Write what follows a sweep: its report and its curves."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedcm.reports.figures.curves import draw_curves
from fedcm.reports.figures.style import PALETTE
from fedcm.reports.metric import find_headline
from fedcm.reports.write import write_report
from fedcm.runs.summary import read_current_summary
from fedcm.sweeps.tasks import SweepTask, shorten_names, to_cell


class SweepReport(NamedTuple):
    """The files about a sweep."""

    page: Path
    curves: Path  # one figure, or the report's folder of figures if there are too many runs for one figure


def read_summaries(tasks: Sequence[SweepTask]) -> dict[str, dict[str, Any]]:
    """Return the summary of each run by its short name; empty for a run that has not ended."""
    names = shorten_names(tasks)
    return {names[task.run.name]: read_current_summary(task.folder) or {} for task in tasks}


def write_sweep_report(tasks: Sequence[SweepTask], runs_dir: Path, title: str, data_dir: Path | None) -> SweepReport:
    """Write the report about the runs of a sweep, and their curves.

    Args:
        tasks: The tasks of the sweep, which have ended.
        runs_dir: The folder that the files are written to.
        title: The beginning of the files' names.
        data_dir: Folder of prepared datasets, for the label mixes.
    """
    cells = {task.folder.path: to_cell(task.run.experiment) for task in tasks}  # other sweeps have other labels
    page = write_report(list(cells), runs_dir / f"{title}-report", data_dir=data_dir, cells=cells)
    if len(tasks) > len(PALETTE):
        return SweepReport(page, page.parent / "figures")
    names = shorten_names(tasks)
    curves = {names[task.run.name]: task.folder.read_metrics() for task in tasks}
    summaries = read_summaries(tasks)
    headlines = {name: metric for name, summary in summaries.items() if (metric := find_headline(summary))}
    return SweepReport(page, draw_curves(curves, title, runs_dir / f"{title}.png", headlines))
