"""`fedcm federation renew`."""

from pathlib import Path
from typing import Annotated

import typer

from fedcm.api.progress import say
from fedcm.cli.federation.options import Days
from fedcm.errors import UserError


def renew(
    folder: Annotated[Path, typer.Argument(metavar="KIT|DIR", help="A kit, or the organiser's folder.")],
    days: Days = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="In the organiser's folder: only for this party; may be repeated."),
    ] = None,
    invitation: Annotated[
        Path | None,
        typer.Option(metavar="INVITATION.toml", help="For a kit: a newer invitation, if the plan has changed."),
    ] = None,
) -> None:
    """Renew certificates, or a kit that another version of fedcm made, and show when certificates expire.

    For a kit: make a new key and a request. Send the request to the organiser and install the answer with
    `fedcm federation join`. Settings, state and runs stay, and the old certificate is kept in `old/`.

    In the organiser's folder: do all of this for the kits in it. A party that --only names gets a kit if it has none,
    such as a site that you have added to DIR/authority/plan.toml. DIR/invitation.toml is written again from the plan.

    Example: `fedcm federation renew kit`
    """
    from fedcm.cli.terminal.federation import print_expiry_dates, print_request
    from fedcm.federation.provision.authority import Authority
    from fedcm.federation.provision.folder import DAYS, is_federation, renew_kits
    from fedcm.federation.provision.membership import request_renewal

    if not is_federation(folder):
        if days is not None or only:
            raise UserError("--days and --only need the organiser's folder, but this is a kit")
        request, invited = request_renewal(folder, invitation)
        print_request(request, invited, folder)
        return
    if invitation is not None:
        raise UserError("--invitation needs a kit, but this is the organiser's folder, which has its own invitation")
    if not renew_kits(folder, days or DAYS, only or (), say):
        say("there are no kits here: each party renews its own with `fedcm federation renew KIT`, and you approve")
    print_expiry_dates(Authority.open(folder).list_issued())
