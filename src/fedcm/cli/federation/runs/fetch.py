"""`fedcm federation fetch`."""

from pathlib import Path
from typing import Annotated

import typer

from fedcm.api.progress import say
from fedcm.cli import options
from fedcm.cli.federation.options import AdminKit, RunName


def fetch(
    run: RunName,
    kit: AdminKit,
    runs_dir: options.RunsDir = Path("runs"),
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Move a run of the same name to `archive` in the runs' folder.")
    ] = False,
) -> None:
    """Fetch a finished run: its metrics, its summary and the trained model, as an ordinary run's folder.

    Example: `fedcm federation fetch demo-fedcm-seed1 --kit admins/lead@example.org && fedcm report runs`
    """
    from fedcm.federation.admin.results import fetch_run
    from fedcm.federation.admin.session import open_session
    from fedcm.federation.kit import read_kit

    with open_session(read_kit(kit)) as session:
        print(f"run: {fetch_run(session, run, runs_dir, say, replace=fresh)}")
