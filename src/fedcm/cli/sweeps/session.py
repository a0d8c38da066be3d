"""What `compare`, `sweep` and `reproduce` share: run a sweep, then print its table and write its report."""

import json
from collections.abc import Sequence
from typing import Any

import typer

from fedcm.api.progress import say, show_progress
from fedcm.cli.archive_question import ask_for_archive
from fedcm.cli.options import SweepOptions
from fedcm.cli.session import choose_workers, command_session, keep_stdout_for_results


def run_sweep(runs: Sequence[Any], title: str, options: SweepOptions) -> None:
    """Run what is missing, then print the table and write the report.

    Args:
        runs: The runs of the sweep.
        title: The name of the report.
        options: The options of the command.
    """
    from fedcm.cli.terminal.sweep_progress import show_sweep_progress
    from fedcm.sweeps.estimate import estimate_tasks
    from fedcm.sweeps.grid import select_by_name
    from fedcm.sweeps.run_names import make_selection_title
    from fedcm.sweeps.session import divide_cores, find_busiest_device, plan_sweep, run_tasks

    runs, title = select_by_name(runs, options.only), make_selection_title(title, options.only)
    names = [run.name for run in runs]
    archive = ask_for_archive(options.runs_dir, names, ask=not options.dry_run) if options.fresh else None
    advice = f"the same command{' without --fresh' if options.fresh else ''} continues where it stopped"
    estimates = []
    with (
        command_session(options.data_dir, advice) as (stop_requested, launch),
        keep_stdout_for_results(options.as_json),
    ):
        tasks = plan_sweep(runs, options.runs_dir, archive=archive, notify=say)
        cores = choose_workers(options.workers, launch, find_busiest_device(runs))
        if options.dry_run:
            estimates = estimate_tasks(tasks, options.data_dir)
        else:
            run_tasks(
                tasks,
                options.data_dir,
                divide_cores(tasks, cores),
                track=options.track or [],
                launch=launch,
                stop_requested=stop_requested,
                notify=say,
                show_progress=show_sweep_progress,
                show_run_progress=show_progress,
            )
    if options.dry_run:
        _print_plan(estimates, cores, options.as_json)
        return
    _print_results(tasks, title, options)
    if any(task.outcome != "finished" for task in tasks):
        raise typer.Exit(1)


def _print_plan(estimates: Sequence[Any], cores: int, as_json: bool) -> None:
    from fedcm.cli.terminal.tables import print_plan
    from fedcm.sweeps.estimate import to_plan

    if as_json:
        print(json.dumps(to_plan(estimates, cores), indent=2))
    else:
        print_plan(estimates, cores)


def _print_results(tasks: Sequence[Any], title: str, options: SweepOptions) -> None:
    from fedcm.cli.terminal.score_tables import print_sweep_results
    from fedcm.reports.sweep import read_summaries, write_sweep_report

    if options.as_json:
        print(json.dumps(read_summaries(tasks), indent=2))
    else:
        print_sweep_results(tasks)
    written = write_sweep_report(tasks, options.runs_dir, title, options.data_dir)
    print_path = say if options.as_json else print
    print_path(f"curves: {written.curves}")
    print_path(f"report: {written.page}")
