"""A whole tuning: check it, search, then run the winners with further seeds. `fedcm tune` and `fedcm.tune` use it."""

import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fedcm.config.experiment import read_experiment
from fedcm.config.overrides import read_table
from fedcm.errors import UserError
from fedcm.runs.archive import make_archive_path, move_to_archive
from fedcm.runs.folder import RunFolder, list_runs
from fedcm.runs.workers.torchrun import is_launched
from fedcm.sweeps.grid import GridRun
from fedcm.sweeps.preflight import reject_impossible_runs
from fedcm.sweeps.session import CoreShare, ShowSweepProgress, divide_cores, find_busiest_device, run_tasks
from fedcm.sweeps.tasks import SweepTask, make_tasks
from fedcm.system.formatting import format_count
from fedcm.trackers import load_trackers
from fedcm.tuning.plan import TuningPlan, make_file_name
from fedcm.tuning.plan_file import read_plan_file, record_plan
from fedcm.tuning.sampler import load_optuna
from fedcm.tuning.search import Search, SearchOptions
from fedcm.tuning.trials import TuningTrial
from fedcm.tuning.winners import Winner, choose_winners, list_winner_runs

ShowSearchProgress = Callable[[Iterator[TuningTrial | None], Search], Iterator[TuningTrial]]


def run_tuning(
    plan: TuningPlan,
    runs_dir: Path,
    options: SearchOptions,
    *,
    fresh: bool = False,
    show_search: ShowSearchProgress | None = None,
    show_winners: ShowSweepProgress | None = None,
) -> tuple[Search, list[Winner]]:
    """Run the trials that are missing, then the best setting of each algorithm with further seeds.

    Args:
        plan: The tuning.
        runs_dir: The folder of runs; the tuning has a folder in it.
        options: How trials are run.
        fresh: Move an existing tuning of this name to the archive first.
        show_search: Shows the progress of the search; none by default.
        show_winners: Shows the progress of the winners' runs; none by default.

    Returns:
        The search with its trials, and the result of each algorithm.

    Raises:
        UserError: If a run cannot work or has failed, or the folder has another tuning.
        Stopped: If the user asked to stop; all finished rounds are saved.
    """
    reject_torchrun()
    load_optuna()
    load_trackers(options.track)
    folder = runs_dir / plan.name
    if fresh and read_plan_file(folder):
        archive_tuning(folder)
    else:
        read_plan_file(folder)
    reject_impossible_trials(plan, folder, options.data_dir)
    with _lock_folder(folder):
        record_plan(plan, folder)
        search = Search(plan, folder, options)
        _report_start(search)
        trials = search.run()
        for _ in trials if show_search is None else show_search(trials, search):
            pass
        winners = choose_winners(search)
        _run_winners(search, winners, show_winners)
    return search, winners


def reject_torchrun() -> None:
    """Raise a UserError under torchrun, whose processes would all search."""
    if is_launched():
        raise UserError("a tuning starts a process for each trial, so it must not run under torchrun; start it alone")


def find_device(plan: TuningPlan) -> str:
    """Return the device that decides how many processes a tuning has: a CUDA device if any trial uses one."""
    return find_busiest_device([GridRun(one.algorithm, run) for one in plan.algorithms for run in one.list_examples()])


def share_cores(plan: TuningPlan, cores: int, jobs: int | None = None) -> CoreShare:
    """Share the cores among the trials in parallel: by default one each, or all for one trial on CUDA devices.

    Args:
        plan: The tuning.
        cores: Processes of all trials together.
        jobs: Trials in parallel, instead of the default.
    """
    if jobs is None:
        jobs = min(cores, plan.trials * len(plan.algorithms)) if find_device(plan) == "cpu" else 1
    return CoreShare(jobs, max(cores // jobs, 1))


def reject_impossible_trials(plan: TuningPlan, folder: Path, data_dir: Path | None) -> None:
    """Build the experiments at the ends of every space, and compare their data with those of earlier trials.

    Raises:
        UserError: If one of them cannot work.
    """
    tasks = [_read_task(run) for run in list_runs(folder)]
    for one in plan.algorithms:
        for k, experiment in enumerate(one.list_examples()):
            name = f"example-{k}-{make_file_name(one.algorithm)}"  # never written
            tasks.append(SweepTask(GridRun(name, experiment), RunFolder(folder / name)))
    reject_impossible_runs(tasks, data_dir)


def archive_tuning(folder: Path) -> Path:
    """Move a tuning to the archive and return its new path."""
    if any(run.is_locked() for run in list_runs(folder)):
        raise UserError(f"the tuning {str(folder)!r} is in progress in another process")
    with _lock_folder(folder):
        return move_to_archive(folder, make_archive_path(folder.parent))


def _read_task(run: RunFolder) -> SweepTask:
    """Return the task of an existing run."""
    task = SweepTask(GridRun(run.name, read_experiment(read_table(run.experiment))), run)
    task.read_folder()
    return task


@contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    """Lock the tuning for this process. The lock ends with the process, however that ends."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"the tuning {str(folder)!r} is in progress in another process") from None
        yield
    finally:
        os.close(descriptor)


def _report_start(search: Search) -> None:
    plan, notify = search.plan, search.options.notify
    if plan.validation is not None:
        notify(
            f"the experiment has no validation data, so the trials hold back a share of the training data: "
            f"data.validation = {plan.validation}"
        )
    if ended := len(search.ended):
        verb = "has" if ended == 1 else "have"
        notify(f"{ended} of {format_count(search.total, 'trial')} {verb} ended already")


def _run_winners(search: Search, winners: Sequence[Winner], show_progress: ShowSweepProgress | None) -> None:
    options = search.options
    planned = list_winner_runs(search, winners)
    tasks = make_tasks([run for _, run in planned], search.folder)
    for (winner, _), task in zip(planned, tasks, strict=True):
        winner.tasks.append(task)
    if tasks:
        run_tasks(
            tasks,
            options.data_dir,
            divide_cores(tasks, options.share.jobs * options.share.workers),
            track=options.track,
            stop_requested=options.stop_requested,
            notify=options.notify,
            show_progress=show_progress,
        )
