"""`fedcm federation join`."""

from pathlib import Path
from typing import Annotated

import typer

from fedcm.api.progress import say


def join(
    signed: Annotated[Path, typer.Argument(metavar="SIGNED.zip", help="The organiser's answer.")],
    kit: Annotated[Path, typer.Argument(metavar="KIT", help="The folder with the request.")],
) -> None:
    """Complete or renew a kit with the organiser's answer to its request.

    An answer whose root certificate is not the invitation's is rejected. Everything else in the kit stays.

    Example: `fedcm federation join berlin.signed.zip kit`
    """
    from fedcm.federation.certificate import read_certificate
    from fedcm.federation.provision.membership import join as install_answer

    ready = install_answer(signed, kit, say)
    ends = read_certificate(ready.certificate).ends.date()
    say(f"the kit of the {ready.kind} {ready.name} is ready, with a certificate until {ends}")
    say("if it is being served, restart it to use the new certificate; what to do next:")
    print(kit / "README.md")
