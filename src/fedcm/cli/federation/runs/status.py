"""`fedcm federation status`."""

import json
from typing import Annotated

import typer

from fedcm.cli.federation.options import AdminKit
from fedcm.cli.options import AsJson


def status(
    kit: AdminKit,
    run: Annotated[str | None, typer.Argument(metavar="[RUN]", help="Show only this run, and how it ended.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show which sites are connected, which runs exist, and their progress.

    Example: `fedcm federation status --kit admins/lead@example.org`
    """
    from fedcm.cli.terminal.federation import print_runs_table
    from fedcm.federation.admin.runs import describe_runs
    from fedcm.federation.admin.session import open_session
    from fedcm.federation.kit import read_kit

    with open_session(read_kit(kit)) as session:
        rows = describe_runs(session, run)
        sites = session.list_sites()
    if as_json:
        print(json.dumps({"sites": sites, "runs": rows}, indent=2))
        return
    print(f"connected: {', '.join(sites) or 'no site'}")
    if rows:
        print_runs_table(rows)
        if run is None and any("last" not in row for row in rows):
            print("`fedcm federation status RUN` shows how a finished run ended")
