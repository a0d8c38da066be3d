"""`fedcm federation approve`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from fedcm.api.progress import say
from fedcm.cli.federation.options import Days
from fedcm.errors import UserError


def approve(
    request: Annotated[Path, typer.Argument(metavar="REQUEST.zip", help="From a party.")],
    authority: Annotated[Path, typer.Option(metavar="DIR", help="The authority's folder, DIR/authority.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="SIGNED.zip", help="The answer; by default beside the request."),
    ] = None,
    days: Days = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Sign a party's request, the first one or a renewal. The answer holds no secret; send it back.

    The plan in DIR/authority/plan.toml says who may have which certificate. Before you say yes, compare the fingerprint
    with the party, for example by telephone.

    Example: `fedcm federation approve berlin.request.zip --authority hospitals/authority`
    """
    from fedcm.federation.provision.authority import Authority
    from fedcm.federation.provision.folder import DAYS
    from fedcm.federation.provision.request import find_planned_party, read_request

    signer = Authority.open(authority)
    requested = read_request(request)
    party = find_planned_party(requested, signer.plan)
    say(
        f"{party.kind} {party.name} requests a certificate of {requested.federation}, with the role {party.role}, for "
        "the key"
    )
    say(requested.fingerprint)
    for issued in signer.list_issued():
        if issued.party == party:
            say(f"its last certificate is valid until {issued.ends.date()}")
    if not yes:
        if not sys.stdin.isatty():
            raise UserError("this is not a terminal, so nobody can confirm; compare the fingerprint, then give --yes")
        if not typer.confirm("Sign it?", err=True):
            say("not signed")
            raise typer.Exit(1)
    signed = output if output is not None else request.with_name(f"{party.name}.signed.zip")
    certificate = signer.sign(requested, signed, days or DAYS)
    say(f"signed until {certificate.ends.date()}; send this back, for `fedcm federation join {signed.name} KIT`:")
    print(signed)
