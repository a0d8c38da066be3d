"""A series of runs from the plan to the report: what `compare`, `sweep` and `reproduce` do once they know the runs."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from fedcm.cli.confirmation import agree_on_archive, tell_of_archive
from fedcm.cli.run_commands import crew_size, going_on_by, only_results_on_stdout, sharing_the_work
from fedcm.errors import UserError
from fedcm.runs.progress import say

_REMARKS = 5  # lines about runs that are there already


@dataclass(frozen=True)
class How:
    """What was asked for besides the runs themselves."""

    runs_dir: Path
    data_dir: Path | None
    workers: int | None
    track: list[str] | None
    only: str  # part of the runs' names
    fresh: bool
    dry_run: bool
    as_json: bool


def drive_series(runs: Sequence[Any], title: str, how: How) -> None:
    from fedcm.sweeps.estimate import estimate_tasks
    from fedcm.sweeps.grid import select_by_name
    from fedcm.sweeps.run_parallel import make_tasks, record_cells

    runs = select_by_name(runs, how.only)
    if how.only:  # a report about some of the runs leaves that about all of them alone
        title = re.sub(r"[^\w.+=-]+", "-", f"{title}-{how.only}").lower()
    names = [run.name for run in runs]
    archive = agree_on_archive(how.runs_dir, names, ask=not how.dry_run) if how.fresh else None
    again = f"the same command goes on where it stopped{', without --fresh' if how.fresh else ''}"
    estimates = []
    with (
        sharing_the_work(how.data_dir, again) as (stopping, launch),
        only_results_on_stdout(how.as_json),
        going_on_by(again),
    ):
        tasks = make_tasks(runs, how.runs_dir, archive=archive)
        _tell_remarks([task.remark for task in tasks if task.remark])
        devices = sorted({task.run.experiment.engine.device for task in tasks})
        cores = crew_size(how.workers, launch, devices[-1])
        if how.dry_run:
            estimates = estimate_tasks(tasks, how.data_dir)
        else:
            record_cells(tasks)
            _run_all(tasks, how, cores, devices == ["cpu"], stopping, launch)
    if how.dry_run:
        _print_plan(estimates, cores, how.as_json)
        return
    if failed := [task for task in tasks if task.state == "failed"]:
        raise UserError(f"{len(failed)} of {len(tasks)} runs failed, first {failed[0].run.name}: {failed[0].why}")
    _show(tasks, title, how)
    if any(task.state != "finished" for task in tasks):
        raise typer.Exit(1)


def _tell_remarks(remarks: Sequence[str]) -> None:
    for remark in remarks[:_REMARKS]:
        say(remark)
    if len(remarks) > _REMARKS:
        say(f"and so of {len(remarks) - _REMARKS} more runs")


def _run_all(
    tasks: Sequence[Any], how: How, cores: int, side_by_side: bool, stopping: Callable[[], bool], launch: Any
) -> None:
    """Side by side on cores; one after another where each run has all the CUDA devices."""
    from fedcm.cli.terminal.sweep_progress import shown_series
    from fedcm.sweeps.preflight import reject_impossible_runs
    from fedcm.sweeps.run_parallel import run_parallel
    from fedcm.sweeps.run_sequential import run_sequential
    from fedcm.trackers import load_trackers
    from fedcm.trackers.tracker import track_finished

    track = how.track or []
    trackers = load_trackers(track)
    for task in tasks:
        if task.over:
            track_finished(task.folder, trackers)
    left = sum(not task.over for task in tasks)
    reject_impossible_runs(tasks, how.data_dir)
    if tasks[0].archive is not None:
        tell_of_archive(tasks[0].archive, how.runs_dir, [task.run.name for task in tasks])
    jobs = max(min(left, cores), 1) if side_by_side else 1
    if left < len(tasks):
        say(f"{len(tasks) - left} of {len(tasks)} runs are finished already")
    if launch is not None:
        passing = run_sequential(tasks, how.data_dir, launch, stopping, trackers)
    else:
        workers = max(cores // jobs, 1)
        passing = run_parallel(
            tasks, how.data_dir, jobs=jobs, workers=workers, track=track, stop_requested=stopping, tell=say
        )
    for _ in shown_series(passing, tasks, jobs):
        pass


def _print_plan(estimates: Sequence[Any], cores: int, as_json: bool) -> None:
    from fedcm.cli.terminal.tables import plan_table

    if not as_json:
        plan_table(estimates, cores)
        return
    rows = [
        {"run": e.task.run.name, "state": e.task.state, "rounds": e.task.rounds, "done": e.task.done}
        | {"seconds_a_round": e.seconds_a_round, "seconds": e.seconds}
        for e in estimates
    ]
    print(json.dumps({"runs": rows, "cores": cores, "seconds": sum(e.seconds for e in estimates) / cores}, indent=2))


def _show(tasks: Sequence[Any], title: str, how: How) -> None:
    from fedcm.cli.report import write_report
    from fedcm.cli.terminal.score_tables import comparison_table, series_table
    from fedcm.reports.figures.curves import draw_curves
    from fedcm.reports.figures.style import PALETTE
    from fedcm.reports.scores import read_summary
    from fedcm.sweeps.run_parallel import read_cell, shorten_names

    names = shorten_names(tasks)
    summaries = {names[task.run.name]: read_summary(task.folder) or {} for task in tasks}
    if how.as_json:
        print(json.dumps(summaries, indent=2))
    elif any(task.run.experiment.cell.labels for task in tasks) or len({t.run.experiment.seed for t in tasks}) > 1:
        series_table(tasks)
    else:
        comparison_table(summaries)
    tell = say if how.as_json else print
    # a run may have been made for another sweep, under other labels
    cells = {task.folder.path: read_cell(task.run.experiment) for task in tasks}
    page = write_report(list(cells), how.data_dir, how.runs_dir / f"{title}-report", cells)
    drawn = page.parent / "figures"  # one a table; a few runs can be told apart in one picture of their own
    if len(tasks) <= len(PALETTE):
        curves = {names[task.run.name]: task.folder.read_metrics() for task in tasks}
        drawn = draw_curves(curves, title, how.runs_dir / f"{title}.png")
    tell(f"curves: {drawn}")
    tell(f"report: {page}")
