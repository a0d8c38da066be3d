"""`fedcm report`: a page about runs, once or as long as they go on; and their digests."""

import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from fedcm.cli.options import DataDir, RunsDir
from fedcm.errors import UserError
from fedcm.runs.progress import say
from fedcm.system.signals import StopSignals

_EVERY = 3.0  # seconds between looks at the runs
_PATIENCE = 15.0  # seconds without a run in progress until a live report ends: a comparison begins the next one by then


def report(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RUNS...", help="Runs' folders, folders of runs, or digests; the runs' folder unless given."
        ),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The report's folder.")] = Path("report"),
    live: Annotated[
        bool, typer.Option("--live", help="Keep the page current while runs go on; Ctrl-C ends it.")
    ] = False,
    digests: Annotated[
        Path | None,
        typer.Option(help="Write the runs' digests into this folder instead of a report.", show_default=False),
    ] = None,
    runs_dir: RunsDir = Path("runs"),
    data_dir: DataDir = None,
) -> None:
    """Make a page about runs: the table, the paper's claims, curves, costs and settings; figures and tables beside it.

    A digest is a run in a small file: `fedcm report results/*.json` makes the page without the runs' folders.

    Example: `fedcm report runs/demo -o report`
    """
    from fedcm.reports.finding import Found

    if live and digests is not None:
        raise UserError("--live keeps a page current and --digests makes none; give one of them")
    found = Found(data_dir)
    paths = runs or [runs_dir]
    if digests is not None:
        _write_digests(found.digests(paths), digests)
        _tell(found.left_out)
    elif live:
        _keep_current(found, paths, output)
    else:
        print(f"report: {_written(found, paths, output)}")


def write_report(
    paths: Sequence[Path], data_dir: Path | None, output: Path, cells: Mapping[Path, dict[str, Any]]
) -> Path:
    """The page, with its figures and tables beside it. `cells` say where in a table the runs stand, in place of what
    their own files say."""
    from fedcm.reports.finding import Found

    return _written(Found(data_dir, cells), paths, output)


def _written(found: Any, paths: Sequence[Path], output: Path) -> Path:
    from fedcm.reports.writing import write_extras, write_page

    story = _story(found, paths)
    write_page(story, output)
    write_extras(story, output)
    _tell(found.left_out)
    return output / "index.html"


def _story(found: Any, paths: Sequence[Path]) -> Any:
    from datetime import UTC, datetime

    from fedcm.reports.story import told

    return told(found.digests(paths), found.left_out, datetime.now(UTC))


def _write_digests(found: Sequence[Any], folder: Path) -> None:
    from fedcm.reports.digest import write_digest

    for digest in found:
        write_digest(digest, folder / f"{_file_name(digest.name)}.json")
    print(f"digests: {len(found)} in {folder}")


def _file_name(name: str) -> str:
    """A run's name is a folder's, but a digest may have come from anywhere."""
    return re.sub(r"[^\w.=+-]+", "-", name).strip(".-") or "run"


def _keep_current(found: Any, paths: Sequence[Path], output: Path) -> None:
    """Writes the page whenever a run has grown; ends when none is in progress any more, or on Ctrl-C."""
    from fedcm.reports.writing import end_live, write_extras, write_page

    story = _story(found, paths)
    shown, number, idle_since = None, 0, time.monotonic()
    print(f"report: {output / 'index.html'}, kept current; Ctrl-C ends it", flush=True)
    with StopSignals(quiet=True) as stopping:
        while not stopping():
            if story.digests != shown:
                number, shown = number + 1, story.digests
                write_page(story, output, f"{story.made:%Y%m%d%H%M%S}-{number}")
            now = time.monotonic()
            idle_since = now if story.going_on else idle_since
            if now - idle_since > _PATIENCE:
                break
            _wait(_EVERY, stopping)
            with suppress(UserError):  # a folder that is just being replaced; what was read before still holds
                story = _story(found, paths)
        end_live(story, output)
        write_extras(story, output)
    _tell(found.left_out)
    say("the page is as the runs were just now; they go on" if story.going_on else "no run is in progress any more")


def _wait(seconds: float, stopping: Any) -> None:
    until = time.monotonic() + seconds
    while not stopping() and time.monotonic() < until:
        time.sleep(0.1)


def _tell(left_out: Sequence[str]) -> None:
    for sentence in left_out:
        say(f"left out: {sentence}")
