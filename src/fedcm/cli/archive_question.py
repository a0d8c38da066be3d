"""The question that `--fresh` asks before it moves runs to the archive."""

import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from fedcm.api.progress import say


def ask_for_archive(runs_dir: Path, names: Sequence[str], *, ask: bool = True) -> Path:
    """Return the folder that the runs of these names are moved to; on a terminal, ask first.

    Call it before signals are handled, so that Ctrl-C ends the question.

    Raises:
        typer.Exit: If the answer is no.
    """
    from fedcm.runs.archive import describe_existing_runs, make_archive_path
    from fedcm.runs.workers.torchrun import is_launched

    archive, runs = make_archive_path(runs_dir), describe_existing_runs(runs_dir, names)
    if runs and ask and not is_launched() and sys.stdin.isatty() and sys.stderr.isatty():
        _ask(f"move {runs} to {archive} and start again?")
    return archive


def ask_before_archiving(folder: Path, sign: Path) -> None:
    """On a terminal, ask before a folder of runs is moved to the archive.

    Args:
        folder: The folder.
        sign: A file that exists if there is something to move.

    Raises:
        typer.Exit: If the answer is no.
    """
    if sign.is_file() and sys.stdin.isatty() and sys.stderr.isatty():
        _ask(f"move {folder} to the archive and start again?")


def _ask(question: str) -> None:
    try:
        agreed, code = typer.confirm(question, default=True, err=True), 1
    except typer.Abort:  # Ctrl-C, or the end of the input
        agreed, code = False, 130
        say("")
    if not agreed:
        say("nothing was changed; without --fresh, finished runs are reused and stopped ones are resumed")
        raise typer.Exit(code)
