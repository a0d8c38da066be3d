"""`fedcm federation server`, `site`, `unit` and `check`: a party's own part in a federation."""

import json
import os
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from fedcm.cli.options import AsJson
from fedcm.cli.run_commands import only_results_on_stdout
from fedcm.runs.progress import say

KitPath = Annotated[Path, typer.Argument(metavar="DIR", help="The kit: the folder of this party.")]


def server(kit: KitPath) -> None:
    """Run a federation's server from its kit, in the foreground, until Ctrl-C or SIGTERM.

    Twice stops it at once. If it dies it is started again. Its whole log is in DIR/log.txt.

    Example: `fedcm federation server hospitals/server`
    """
    _serve(kit, "server")


def site(kit: KitPath) -> None:
    """Run a site from its kit, in the foreground, until Ctrl-C or SIGTERM: it waits for experiments and takes part.

    Twice stops it at once. If it dies it is started again. Its whole log is in DIR/log.txt. Before the first start,
    `fedcm federation check DIR` tells whether all is well.

    Example: `fedcm federation site hospitals/sites/berlin`
    """
    _serve(kit, "site")


def unit(
    kit: KitPath,
    user: Annotated[str | None, typer.Option(help="Who runs it; whoever owns the kit unless given.")] = None,
) -> None:
    """Print a systemd unit that runs a server or a site from its kit, started with the machine and kept to its folder.

    Example: `fedcm federation unit hospitals/server | sudo tee /etc/systemd/system/fedcm-server.service`
    """
    from fedcm.federation.serve.unit import unit_text

    print(unit_text(kit, user), end="")


def check(
    kit: KitPath,
    experiment: Annotated[
        Path | None,
        typer.Option(
            metavar="EXPERIMENT.toml",
            help="Also whether the site's limits allow this experiment, and its model takes the site's data.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check a kit before it is started: its keys and certificate, the way to the server, the clock, the data.

    Leaves with code 1 when something must be done first.

    Example: `fedcm federation check hospitals/sites/berlin --experiment experiments/digits.toml`
    """
    from fedcm.federation.check.checking import checked

    findings = []
    with only_results_on_stdout(as_json):
        for finding in checked(kit, experiment):
            findings.append(finding)
            if not as_json:
                print(finding.line, flush=True)
    good = all(finding.state != "failed" for finding in findings)
    if as_json:
        print(json.dumps({"good": good, "findings": [finding.table for finding in findings]}, indent=2))
    raise typer.Exit(0 if good else 1)


def _serve(kit: Path, kind: str) -> None:
    from fedcm.federation.serve.serving import serve

    def tell(line: str) -> None:
        # the journal notes the time by itself
        say(line if "JOURNAL_STREAM" in os.environ else f"{datetime.now():%Y-%m-%d %H:%M:%S} {line}")

    raise typer.Exit(serve(kit, kind, tell))
