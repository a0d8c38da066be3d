"""`fedcm report`: write a page about runs, keep it current, or write digests."""

from pathlib import Path
from typing import Annotated

import typer

from fedcm.api.progress import say
from fedcm.cli.options import DataDir, RunsDir
from fedcm.errors import UserError


def report(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RUNS...", help="Runs, folders of runs, or digests; by default the folder that --runs-dir names."
        ),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The report's folder.")] = Path("report"),
    live: Annotated[
        bool,
        typer.Option("--live", help="Keep the page current while runs are in progress; Ctrl-C ends it."),
    ] = False,
    digests: Annotated[
        Path | None,
        typer.Option(help="Write the runs' digests into this folder instead of a report.", show_default=False),
    ] = None,
    runs_dir: RunsDir = Path("runs"),
    data_dir: DataDir = None,
) -> None:
    """Write a page about runs: tables, curves, costs and settings, with figures and tables for papers.

    A digest is a small JSON file with all that a report needs from a run: `fedcm report results/table1` works without
    the runs' folders.

    Example: `fedcm report runs/demo -o report`
    """
    if live and digests is not None:
        raise UserError("--live keeps a page current and --digests writes none; give only one of them")
    paths = runs or [runs_dir]
    if digests is not None:
        from fedcm.reports.write import write_digests

        written = write_digests(paths, digests, data_dir, notify=say)
        print(f"digests: {len(written)} in {digests}")
    elif live:
        from fedcm.reports.live import keep_report_current

        keep_report_current(paths, output, data_dir, print_status=_print_at_once, notify=say)
    else:
        from fedcm.reports.write import write_report

        print(f"report: {write_report(paths, output, data_dir, notify=say)}")


def _print_at_once(message: str) -> None:
    print(message, flush=True)
