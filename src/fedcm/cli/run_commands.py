"""`fedcm run`, `resume` and `compare`: what they share is who does the work, and how an end before the end is told."""

import json
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from typing import Annotated, Any

import typer

from fedcm.cli import options
from fedcm.cli.confirmation import agree_on_archive
from fedcm.errors import UserError
from fedcm.runs.progress import say
from fedcm.system.processes import on_parent_exit
from fedcm.system.signals import StopSignals


def run(
    experiment: options.ExperimentPath,
    settings: options.Settings = None,
    name: Annotated[
        str | None, typer.Option(help="The run's name; made from experiment, algorithm and seed unless given.")
    ] = None,
    seed: options.Seed = None,
    runs_dir: options.RunsDir = Path("runs"),
    data_dir: options.DataDir = None,
    workers: options.Workers = None,
    compile: options.Compile = None,
    device: options.Device = None,
    precision: options.Precision = None,
    track: options.Track = None,
    diagnose: options.Diagnose = None,
    fresh: Annotated[
        bool,
        typer.Option(
            "--fresh",
            help="Run it under the same name again; the run of that name is moved to `archive` in the runs' folder. "
            "On a terminal it asks.",
        ),
    ] = False,
    archive: Annotated[
        Path | None, typer.Option(hidden=True, help="Where --fresh moves a run, for a series that has asked already.")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Run an experiment. docs/experiments.md lists every setting; an unknown one is answered with the known ones.

    Example: `fedcm run experiments/demo.toml --set algorithm.alpha=0.05 --set rounds=100 --seed 3`
    """
    from fedcm.config.experiment import load_experiment
    from fedcm.runs.folder import find_run_of_job
    from fedcm.runs.starting import begin, default_name
    from fedcm.runs.torchrun import launched
    from fedcm.trackers import load_trackers

    changes = options.changes(settings, seed, compile, device, precision)
    if fresh and archive is None and not launched():
        archive = agree_on_archive(runs_dir, [name or default_name(load_experiment(experiment, changes))])
    with sharing_the_work(data_dir, "start it again") as (stopping, launch), only_results_on_stdout(as_json):
        trackers = load_trackers(track or ())
        chosen = load_experiment(experiment, changes)
        size = crew_size(workers, launch, chosen.engine.device)
        folder = find_run_of_job(launch.job, runs_dir) if launch is not None else None
        if folder is not None:
            code = _go_on(folder, data_dir, stopping, size, launch, trackers, diagnose)
        else:
            if fresh:
                name = name or default_name(chosen)
                archive = archive or agree_on_archive(runs_dir, [name])
            started = begin(chosen, runs_dir, name, data_dir, stopping, archive=archive, workers=size, launch=launch)
            folder = started.folder
            if archive is not None and (archive / folder.name).is_dir():
                say(f"the run that was {folder.path} is {archive / folder.name} now")
            say(f"run {folder.path}")
            if started.assembly.measured:
                engine = started.assembly.experiment.engine
                say(f"found by trying: stack {engine.stack}, layout {engine.layout}, compile {engine.compile}")
            code = _drive(started, trackers, diagnose)
    _show_summary(folder, as_json)
    raise typer.Exit(code)


def resume(
    run: Annotated[Path, typer.Argument(help="The run's folder, or its name in the runs' folder.")],
    runs_dir: options.RunsDir = Path("runs"),
    data_dir: options.DataDir = None,
    workers: options.Workers = None,
    track: options.Track = None,
    diagnose: options.Diagnose = None,
    as_json: options.AsJson = False,
) -> None:
    """Go on with a run that was stopped, from its newest checkpoint: the result is the same to the last bit.

    A larger `rounds` in the run's experiment.toml makes a finished run longer.

    Example: `fedcm resume runs/demo-fedcm-seed1`
    """
    from fedcm.config.overrides import read_table
    from fedcm.runs.folder import RunFolder, folder_exists
    from fedcm.trackers import load_trackers

    with sharing_the_work(data_dir, "start it again") as (stopping, launch), only_results_on_stdout(as_json):
        folder = RunFolder.open(run if folder_exists(run) or not folder_exists(runs_dir / run) else runs_dir / run)
        device = read_table(folder.experiment).get("engine", {}).get("device", "cpu")
        size = crew_size(workers, launch, device)
        code = _go_on(folder, data_dir, stopping, size, launch, load_trackers(track or ()), diagnose)
    _show_summary(folder, as_json)
    raise typer.Exit(code)


def _go_on(
    folder: Any,
    data_dir: Path | None,
    stopping: Callable[[], bool],
    size: int,
    launch: Any,
    trackers: list[Any],
    diagnose: int | None,
) -> int:
    """The exit code."""
    from fedcm.config.overrides import read_table
    from fedcm.runs.starting import resume
    from fedcm.trackers.tracker import track_finished

    summary = folder.read_summary() or {}
    rounds = read_table(folder.experiment).get("rounds", 0)
    if summary.get("outcome") == "finished" and summary.get("rounds", 0) >= rounds:
        say(f"run {folder.path} has finished already")
        track_finished(folder, trackers)
        return 0
    resumed = resume(folder.path, data_dir, say, stopping, workers=size, launch=launch)
    say(f"run {folder.path} goes on at round {resumed.first} of {resumed.rounds}")
    return _drive(resumed, trackers, diagnose)


def only_results_on_stdout(wanted: bool) -> AbstractContextManager[Any]:
    """What a user's own code prints goes to stderr, so that stdout is JSON alone."""
    return redirect_stdout(sys.stderr) if wanted else nullcontext()


@contextmanager
def going_on_by(how: str) -> Iterator[None]:
    """An end before the end is told with how to go on."""
    from fedcm.errors import Stopped, WorkerFailed, WriteFailed

    try:
        yield
    except Stopped:
        say(f"stopped, all finished rounds are saved; {how}")
        raise typer.Exit(130) from None
    except WriteFailed as failure:
        say(f"fedcm: {failure}; what was saved before is whole: {how}")
        raise typer.Exit(1) from None
    except WorkerFailed as failure:
        say_failure(failure, f"; what was saved before is whole: {how}")
        raise typer.Exit(1) from None


def say_failure(failure: Any, then: str = "") -> None:
    """A `WorkerFailed`: the traceback, if the user asked for it, and below it the sentence."""
    if failure.trace:
        say(failure.trace)
    say(f"fedcm: {failure.sentence}{then}")


def _drive(run: Any, trackers: list[Any], diagnose: int | None) -> int:
    """The exit code: 0, or 1 for a run that diverged."""
    from fedcm.errors import Diverged
    from fedcm.executors.diagnosis import Diagnosis, report_cost
    from fedcm.runs.progress import show_progress
    from fedcm.runs.running import drive
    from fedcm.trackers.tracker import track

    how = f"go on with `fedcm resume {shlex.quote(str(run.folder.path))}`"
    run.diagnosis = None if diagnose is None else Diagnosis(diagnose)
    if diagnose is not None and run.first // diagnose == run.rounds // diagnose:
        say(f"--diagnose {diagnose} comes to no round of this run, which ends after {run.rounds}")
    with going_on_by(how):
        try:
            rounds = drive(run) if diagnose is None else report_cost(drive(run), diagnose, say)
            rounds = show_progress(rounds, run.rounds, run.first, run.folder.name)
            for _ in track(rounds, run.folder, run.first, trackers):
                pass
        except Diverged as reason:
            say(f"fedcm: training diverged: {reason}; what was saved before it stays. A smaller client.lr helps most.")
            return 1
    return 0


@contextmanager
def sharing_the_work(data_dir: Path | None, how: str) -> Iterator[tuple[Callable[[], bool], Any]]:
    """Gives a function that tells whether to stop, and the processes that torchrun started, if it did."""
    from fedcm.runs.torchrun import follows
    from fedcm.runs.worker import sharing

    with (
        StopSignals(quiet=follows()) as stopping,
        going_on_by(how),
        sharing(data_dir, stopping) as launch,
    ):
        on_parent_exit(lambda: os.kill(os.getpid(), signal.SIGTERM))  # a series was killed: save, and end too
        yield stopping, launch


def crew_size(workers: int | None, launch: Any, device: str) -> int:
    """How many processes to share the work with on this machine; torchrun's are there already."""
    from fedcm.system.device import count_default_workers

    if launch is None:
        return workers if workers is not None else count_default_workers(device)
    if workers not in (None, launch.group.size):
        raise UserError(
            f"--workers must be left out under torchrun, which started {launch.group.size} processes, got {workers}; "
            "set their number with --nproc-per-node and --nnodes"
        )
    return 1


def _show_summary(folder: Any, as_json: bool) -> None:
    from fedcm.cli.terminal.score_tables import comparison_table
    from fedcm.reports.scores import read_summary

    summary = read_summary(folder) or {}
    if as_json:
        print(json.dumps(summary, indent=2))
    else:
        comparison_table({summary["name"]: summary})
        print(f"run: {folder.path}")
