"""`fedcm federation remove`."""

from pathlib import Path
from typing import Annotated

import typer

from fedcm.api.progress import say


def remove(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A site's name or an admin's address.")],
    authority: Annotated[Path, typer.Option(metavar="DIR", help="The authority's folder, DIR/authority.")],
    keep_place: Annotated[
        bool, typer.Option("--keep-place", help="Keep it in the plan: it may request a new certificate.")
    ] = False,
) -> None:
    """Remove a site or an admin: all certificates that were signed for it so far are refused from now on.

    This writes a new list of members, signed with the root key. The server's operator copies it into the server's kit.
    A running server reads it within about a second, without a restart, and closes the connections of who was removed.

    Example: `fedcm federation remove berlin --authority hospitals/authority`
    """
    from fedcm.federation.provision.authority import Authority
    from fedcm.federation.provision.folder import remove_party
    from fedcm.system.formatting import format_count

    signer = Authority.open(authority)
    removed = remove_party(signer, name, keep_place=keep_place)
    say(f"{name}: {format_count(len(removed), 'certificate')} removed")
    say("the server's operator must copy this file into the server's kit, unless the kit is in this folder:")
    print(signer.members_file)
