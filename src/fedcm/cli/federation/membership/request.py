"""`fedcm federation request`."""

from pathlib import Path
from typing import Annotated

import typer


def request(
    invitation: Annotated[Path, typer.Argument(metavar="INVITATION.toml", help="From the organiser.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="KIT", help="The kit's folder, a new one.")],
    site: Annotated[str | None, typer.Option(metavar="NAME", help="Request for this site.")] = None,
    server: Annotated[bool, typer.Option("--server", help="Request for the server.")] = False,
    admin: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Request for this admin or viewer.")] = None,
) -> None:
    """Request a certificate, with a key that is made in the kit and never leaves it.

    Send the request to the organiser, and install the answer with `fedcm federation join`. Compare both fingerprints
    with the organiser, for example by telephone.

    Example: `fedcm federation request invitation.toml --site berlin -o kit`
    """
    from fedcm.cli.terminal.federation import print_request
    from fedcm.federation.provision.invitation import read_invitation
    from fedcm.federation.provision.membership import choose_party, request_first_certificate

    invited = read_invitation(invitation)
    party = choose_party(invited, site=site, server=server, admin=admin)
    print_request(request_first_certificate(output, party, invited), invited, output)
