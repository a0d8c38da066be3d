"""The question that `--fresh` asks before it moves runs to the archive."""

import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from fedcm.runs.progress import say


def ask_for_archive(runs_dir: Path, names: Sequence[str], *, ask: bool = True) -> Path:
    """Return the folder that the runs of these names are moved to; on a terminal, ask first.

    Call it before signals are handled, so that Ctrl-C ends the question.

    Raises:
        typer.Exit: the answer is no.
    """
    from fedcm.runs.archive import make_archive_path
    from fedcm.runs.torchrun import is_launched

    archive, runs = make_archive_path(runs_dir), _describe_existing(runs_dir, names)
    if runs and ask and not is_launched() and sys.stdin.isatty() and sys.stderr.isatty():
        _ask(f"move {runs} to {archive} and start again?")
    return archive


def announce_archive(archive: Path, runs_dir: Path, names: Sequence[str]) -> None:
    """Say where the existing runs of these names are moved to."""
    if runs := _describe_existing(runs_dir, names):
        say(f"{runs} will be moved to {archive}, each when its new run starts")


def _ask(question: str) -> None:
    try:
        agreed, code = typer.confirm(question, default=True, err=True), 1
    except typer.Abort:  # Ctrl-C, or the end of the input
        agreed, code = False, 130
        say("")
    if not agreed:
        say("nothing was changed; without --fresh, finished runs are reused and stopped ones are resumed")
        raise typer.Exit(code)


def _describe_existing(runs_dir: Path, names: Sequence[str]) -> str:
    """The runs that exist; empty if none does."""
    existing = [runs_dir / name for name in names if (runs_dir / name / "experiment.toml").is_file()]
    if len(existing) > 1:
        return f"the {len(existing)} runs of these names in {runs_dir}"
    return "".join(map(str, existing))
