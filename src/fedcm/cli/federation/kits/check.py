"""`fedcm federation check`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from fedcm.cli.federation.options import KitPath
from fedcm.cli.options import AsJson
from fedcm.cli.session import keep_stdout_for_results


def check(
    kit: KitPath,
    experiment: Annotated[
        Path | None,
        typer.Option(
            metavar="EXPERIMENT.toml",
            help="Also check that the site's limits allow this experiment and that its model takes the site's data.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check a kit before you start it: its key and certificate, the connection to the server, the clock, the data.

    Exits with code 1 if a check failed.

    Example: `fedcm federation check hospitals/sites/berlin --experiment experiments/demo.toml`
    """
    from fedcm.federation.check.checks import check_kit
    from fedcm.federation.file_modes import private_files

    results = []
    with keep_stdout_for_results(as_json), private_files():
        for result in check_kit(kit, experiment):
            results.append(result)
            if not as_json:
                print(result.line, flush=True)
    good = all(result.state != "failed" for result in results)
    if as_json:
        print(json.dumps({"good": good, "findings": [result.table for result in results]}, indent=2))
    raise typer.Exit(0 if good else 1)
