"""`fedcm federation`: the group of its commands."""

import typer

from fedcm.cli.federation.kits.audit import audit
from fedcm.cli.federation.kits.check import check
from fedcm.cli.federation.kits.server import server
from fedcm.cli.federation.kits.site import site
from fedcm.cli.federation.kits.unit import unit
from fedcm.cli.federation.membership.approve import approve
from fedcm.cli.federation.membership.init import init
from fedcm.cli.federation.membership.join import join
from fedcm.cli.federation.membership.remove import remove
from fedcm.cli.federation.membership.renew import renew
from fedcm.cli.federation.membership.request import request
from fedcm.cli.federation.runs.deal import deal
from fedcm.cli.federation.runs.fetch import fetch
from fedcm.cli.federation.runs.logs import logs
from fedcm.cli.federation.runs.resume import resume
from fedcm.cli.federation.runs.run import run
from fedcm.cli.federation.runs.status import status
from fedcm.cli.federation.runs.stop import stop

federation_app = typer.Typer(
    no_args_is_help=True,
    help="""Run a real federation: sites keep their data and train on their own machines (docs/guides/federation.md).

An organiser creates it (`init`), each party starts its part (`server`, `site`), an admin runs experiments (`run`).""",
)
for command in (
    *(init, request, approve, join, renew, remove),
    *(check, server, site, unit, audit),
    *(run, status, stop, resume, logs, fetch, deal),
):
    federation_app.command()(command)
