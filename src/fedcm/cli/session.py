"""What every command that trains shares: signals, torchrun, workers, exit codes and output."""

import json
import os
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import typer

from fedcm.api.progress import say
from fedcm.errors import Stopped, TrainingFailed, UserError, WriteFailed
from fedcm.system.callbacks import StopRequested
from fedcm.system.formatting import format_count
from fedcm.system.processes import call_on_parent_exit
from fedcm.system.signals import StopSignals


class CommandSession(NamedTuple):
    """A command in progress.

    Attributes:
        stop_requested: Returns whether the user asked to stop.
        launch: The processes that torchrun started; None without torchrun.
    """

    stop_requested: StopRequested
    launch: Any


@contextmanager
def command_session(data_dir: Path | None, advice: str) -> Iterator[CommandSession]:
    """Handle signals, torchrun and failures in the block. `advice` says how to continue after a stop or a failure."""
    from fedcm.runs.workers.torchrun import is_worker
    from fedcm.runs.workers.worker import connect_torchrun

    with (
        StopSignals(quiet=is_worker()) as stop_requested,
        exit_on_failure(advice),
        connect_torchrun(data_dir, stop_requested) as launch,
    ):
        call_on_parent_exit(lambda: os.kill(os.getpid(), signal.SIGTERM))  # save and stop if the sweep was killed
        yield CommandSession(stop_requested, launch)


@contextmanager
def exit_on_failure(advice: str) -> Iterator[None]:
    """Print how a run ended early and exit: 130 after a stop, 1 after a failure."""
    try:
        yield
    except Stopped:
        say(f"stopped, all finished rounds are saved; {advice}")
        raise typer.Exit(130) from None
    except WriteFailed as failure:
        say(f"fedcm: {failure}; everything saved before is complete: {_describe_resume(failure.run, advice)}")
        raise typer.Exit(1) from None
    except TrainingFailed as failure:
        print_failure(failure, f"; everything saved before is complete: {_describe_resume(failure.run, advice)}")
        raise typer.Exit(1) from None


def _describe_resume(run: Path | None, default: str) -> str:
    return default if run is None else f"resume it with `fedcm resume {shlex.quote(str(run))}`"


def print_failure(failure: TrainingFailed, advice: str = "") -> None:
    """Print the error, after its traceback if the user asked for tracebacks."""
    if failure.trace:
        say(failure.trace)
    say(f"fedcm: {failure.sentence}{advice}")


def choose_workers(workers: int | None, launch: Any, device: str) -> int:
    """Return how many processes of this machine share the work; 1 under torchrun, which started its own."""
    from fedcm.system.hardware import count_default_workers

    if launch is None:
        return workers if workers is not None else count_default_workers(device)
    if workers not in (None, launch.group.size):
        processes = format_count(launch.group.size, "process", "processes")
        raise UserError(
            f"--workers must be left out under torchrun, which started {processes}, got {workers}; "
            "set their number with --nproc-per-node and --nnodes"
        )
    return 1


def keep_stdout_for_results(as_json: bool) -> AbstractContextManager[Any]:
    """With --json, send what a user's own code prints to stderr, so that stdout is JSON only."""
    return redirect_stdout(sys.stderr) if as_json else nullcontext()


def print_summary(run: Any, as_json: bool) -> None:
    """Print the summary of a finished run: a table, or JSON."""
    from fedcm.cli.terminal.score_tables import print_comparison

    summary = run.summary
    if as_json:
        print(json.dumps(summary, indent=2))
    else:
        print_comparison({run.name: summary})
        print(f"run: {run.path}")


def print_outcome_and_exit(run: Any, as_json: bool) -> None:
    """Print how a run ended and exit: 0 if it finished, 1 if it diverged, 130 if it was stopped."""
    if run.outcome == "stopped":
        say(f"stopped, all finished rounds are saved; {_describe_resume(run.path, '')}")
        raise typer.Exit(130)
    print_summary(run, as_json)
    raise typer.Exit(1 if run.outcome == "diverged" else 0)
