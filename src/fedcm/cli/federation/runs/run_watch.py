"""Watch a submitted run to its end and fetch it, for `fedcm federation run` and `resume`."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fedcm.api.progress import say
from fedcm.errors import UserError

if TYPE_CHECKING:
    from fedcm.federation.admin.runs import SubmittedRun
    from fedcm.federation.kit import Kit


def watch_and_fetch(kit: "Kit", run: "SubmittedRun", runs_dir: Path, restarts: int, patience: float) -> None:
    """Show a run until it is over, and fetch it.

    Raises:
        typer.Exit: With code 130 after Ctrl-C; with code 1 if the run was stopped or diverged.
        UserError: If the run failed.
    """
    from fedcm.cli.terminal.federation import show_run
    from fedcm.federation.admin.results import fetch_run
    from fedcm.federation.admin.session import open_session
    from fedcm.federation.admin.watch import watch_run

    name = run.name
    updates = watch_run(kit, name, run.experiment, run.job, say, restarts=restarts, patience=patience)
    try:
        outcome = show_run(updates, name, run.experiment.rounds)
    except KeyboardInterrupt:
        say(f"the run continues; `fedcm federation status {name}` shows its progress, `stop {name}` stops it")
        raise typer.Exit(130) from None
    if outcome.state == "failed":
        raise UserError(outcome.why)
    if outcome.metrics or outcome.state == "finished":  # the last job may have had no round left to do
        with open_session(kit) as session:
            print(f"run: {fetch_run(session, name, runs_dir, say, replace=True)}")
    if outcome.state != "finished":
        say(f"run {name} {outcome.state}{f': {outcome.why}' if outcome.why else ''}")
        raise typer.Exit(1)
