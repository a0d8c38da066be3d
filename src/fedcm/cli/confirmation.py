"""What `--fresh` asks before it moves runs to the archive, and what it says of them."""

import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from fedcm.runs.progress import say


def agree_on_archive(runs_dir: Path, names: Sequence[str], *, ask: bool = True) -> Path:
    """Where the runs of these names go; a terminal is asked. Call it before signals are caught, so that Ctrl-C ends
    the question.

    Raises:
        typer.Exit: the answer is no.
    """
    from fedcm.runs.archive import new_archive
    from fedcm.runs.torchrun import launched

    archive, runs = new_archive(runs_dir), _there(runs_dir, names)
    if runs and ask and not launched() and sys.stdin.isatty() and sys.stderr.isatty():
        _ask(f"move {runs} to {archive} and run anew?")
    return archive


def _ask(question: str) -> None:
    try:
        agreed, code = typer.confirm(question, default=True, err=True), 1
    except typer.Abort:  # Ctrl-C, or the end of the input
        agreed, code = False, 130
        say("")
    if not agreed:
        say("nothing was changed; without --fresh, finished runs are used again and stopped ones are resumed")
        raise typer.Exit(code)


def tell_of_archive(archive: Path, runs_dir: Path, names: Sequence[str]) -> None:
    if runs := _there(runs_dir, names):
        say(f"{runs} will be in {archive}, each from when it is begun anew")


def _there(runs_dir: Path, names: Sequence[str]) -> str:
    """In words; none where none of them is."""
    there = [runs_dir / name for name in names if (runs_dir / name / "experiment.toml").is_file()]
    return f"the {len(there)} runs of these names in {runs_dir}" if len(there) > 1 else "".join(map(str, there))
