"""`fedcm federation`: the group of its commands."""

import typer

from fedcm.cli.federation.approve import approve
from fedcm.cli.federation.check import check
from fedcm.cli.federation.deal import deal
from fedcm.cli.federation.fetch import fetch
from fedcm.cli.federation.init import init
from fedcm.cli.federation.join import join
from fedcm.cli.federation.logs import logs
from fedcm.cli.federation.renew import renew
from fedcm.cli.federation.request import request
from fedcm.cli.federation.resume import resume
from fedcm.cli.federation.run import run
from fedcm.cli.federation.server import server
from fedcm.cli.federation.site import site
from fedcm.cli.federation.status import status
from fedcm.cli.federation.stop import stop
from fedcm.cli.federation.unit import unit

federation_app = typer.Typer(
    no_args_is_help=True,
    help="""Run a real federation: sites keep their data and train on their own machines (docs/guides/federation.md).

An organiser creates it (`init`), each party starts its part (`server`, `site`), an admin runs experiments (`run`).""",
)
for command in (
    *(init, request, approve, join, renew),
    *(check, server, site, unit),
    *(run, status, stop, resume, logs, fetch, deal),
):
    federation_app.command()(command)
