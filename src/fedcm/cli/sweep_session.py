"""A sweep on the command line, from its runs to its report: what `compare`, `sweep` and `reproduce` share."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import typer

from fedcm.cli.archive_question import announce_archive, ask_for_archive
from fedcm.cli.options import SweepOptions
from fedcm.cli.session import choose_workers, command_session, exit_codes, results_on_stdout
from fedcm.errors import UserError
from fedcm.runs.progress import say

_REMARKS = 5  # printed at most


def run_sweep(runs: Sequence[Any], title: str, options: SweepOptions) -> None:
    """Run what is missing, then print the table and write the report.

    Args:
        runs: The runs of the sweep.
        title: The name of the report.
        options: The options of the command.
    """
    from fedcm.sweeps.estimate import estimate_tasks
    from fedcm.sweeps.grid import select_by_name
    from fedcm.sweeps.tasks import make_tasks
    from fedcm.system.formatting import slugify

    runs = select_by_name(runs, options.only)
    if options.only:  # a report about some of the runs must not replace the report about all of them
        title = slugify(f"{title}-{options.only}").lower()
    names = [run.name for run in runs]
    archive = ask_for_archive(options.runs_dir, names, ask=not options.dry_run) if options.fresh else None
    advice = f"the same command{' without --fresh' if options.fresh else ''} continues where it stopped"
    estimates = []
    with (
        command_session(options.data_dir, advice) as (stop_requested, launch),
        results_on_stdout(options.as_json),
        exit_codes(advice),
    ):
        tasks = make_tasks(runs, options.runs_dir, archive=archive)
        _print_remarks([task.remark for task in tasks if task.remark])
        devices = sorted({task.run.experiment.engine.device for task in tasks})
        cores = choose_workers(options.workers, launch, devices[-1])
        if options.dry_run:
            estimates = estimate_tasks(tasks, options.data_dir)
        else:
            _run_tasks(tasks, options, cores, devices == ["cpu"], stop_requested, launch)
    if options.dry_run:
        _print_plan(estimates, cores, options.as_json)
        return
    if failed := [task for task in tasks if task.state == "failed"]:
        raise UserError(f"{len(failed)} of {len(tasks)} runs failed, first {failed[0].run.name}: {failed[0].why}")
    _show_results(tasks, title, options)
    if any(task.state != "finished" for task in tasks):
        raise typer.Exit(1)


def _print_remarks(remarks: Sequence[str]) -> None:
    for remark in remarks[:_REMARKS]:
        say(remark)
    if len(remarks) > _REMARKS:
        say(f"the same holds for {len(remarks) - _REMARKS} more runs")


def _run_tasks(
    tasks: Sequence[Any],
    options: SweepOptions,
    cores: int,
    in_parallel: bool,
    stop_requested: Callable[[], bool],
    launch: Any,
) -> None:
    """Run the tasks in parallel on the cores, or one after another if each run uses all CUDA devices."""
    from fedcm.cli.terminal.sweep_progress import show_sweep_progress
    from fedcm.sweeps.preflight import reject_impossible_runs
    from fedcm.sweeps.run_parallel import run_parallel
    from fedcm.sweeps.run_sequential import run_sequential
    from fedcm.sweeps.tasks import record_cells
    from fedcm.trackers import load_trackers
    from fedcm.trackers.tracker import track_finished

    track = options.track or []
    trackers = load_trackers(track)
    for task in tasks:
        if task.has_ended:
            track_finished(task.folder, trackers)
    remaining = sum(not task.has_ended for task in tasks)
    reject_impossible_runs(tasks, options.data_dir)
    record_cells(tasks)
    if tasks[0].archive is not None:
        announce_archive(tasks[0].archive, options.runs_dir, [task.run.name for task in tasks])
    jobs = max(min(remaining, cores), 1) if in_parallel else 1
    if remaining < len(tasks):
        say(f"{len(tasks) - remaining} of {len(tasks)} runs are finished already")
    if launch is not None:
        ended = run_sequential(tasks, options.data_dir, launch, stop_requested, trackers)
    else:
        ended = run_parallel(
            tasks,
            options.data_dir,
            jobs=jobs,
            workers=max(cores // jobs, 1),
            track=track,
            stop_requested=stop_requested,
            notify=say,
        )
    for _ in show_sweep_progress(ended, tasks, jobs):
        pass


def _print_plan(estimates: Sequence[Any], cores: int, as_json: bool) -> None:
    from fedcm.cli.terminal.tables import print_plan

    if not as_json:
        print_plan(estimates, cores)
        return
    rows = [
        {"run": e.task.run.name, "state": e.task.state, "rounds": e.task.rounds, "done": e.task.done}
        | {"seconds_a_round": e.seconds_per_round, "seconds": e.seconds}
        for e in estimates
    ]
    print(json.dumps({"runs": rows, "cores": cores, "seconds": sum(e.seconds for e in estimates) / cores}, indent=2))


def _show_results(tasks: Sequence[Any], title: str, options: SweepOptions) -> None:
    from fedcm.cli.terminal.score_tables import print_comparison, print_sweep
    from fedcm.reports.figures.curves import draw_curves
    from fedcm.reports.figures.style import PALETTE
    from fedcm.reports.scores import read_summary
    from fedcm.reports.write import write_report
    from fedcm.sweeps.tasks import read_cell, shorten_names

    names = shorten_names(tasks)
    summaries = {names[task.run.name]: read_summary(task.folder) or {} for task in tasks}
    if options.as_json:
        print(json.dumps(summaries, indent=2))
    elif any(task.run.experiment.cell.labels for task in tasks) or len({t.run.experiment.seed for t in tasks}) > 1:
        print_sweep(tasks)
    else:
        print_comparison(summaries)
    tell = say if options.as_json else print
    cells = {task.folder.path: read_cell(task.run.experiment) for task in tasks}  # other sweeps have other labels
    page = write_report(list(cells), options.runs_dir / f"{title}-report", data_dir=options.data_dir, cells=cells)
    drawn = page.parent / "figures"
    if len(tasks) <= len(PALETTE):  # a few runs can be told apart in one picture
        curves = {names[task.run.name]: task.folder.read_metrics() for task in tasks}
        drawn = draw_curves(curves, title, options.runs_dir / f"{title}.png")
    tell(f"curves: {drawn}")
    tell(f"report: {page}")
