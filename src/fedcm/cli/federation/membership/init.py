"""`fedcm federation init`."""

from pathlib import Path
from typing import Annotated

import typer

from fedcm.api.progress import say
from fedcm.cli.federation.options import Days


def init(
    plan: Annotated[Path, typer.Argument(metavar="PLAN.toml", help="Who takes part, and where the server is.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="The organiser's folder, a new one.")],
    only_authority: Annotated[
        bool,
        typer.Option("--only-authority", help="Recommended: make no kits; every party makes its own key."),
    ] = False,
    days: Days = None,
) -> None:
    """Create a federation: an authority that signs certificates, and a kit for each party.

    With --only-authority you never see anybody's private key: send DIR/invitation.toml to every party; they then run
    `fedcm federation request`. A plan:

    - `name = "hospitals"`
    - `sites = ["berlin", "paris"]`
    - `admins = ["lead@example.org"]`
    - `server = {host = "fl.example.org", port = 8002}`

    Example: `fedcm federation init PLAN.toml -o hospitals --only-authority`
    """
    from fedcm.cli.terminal.federation import print_expiry_dates
    from fedcm.federation.plan import read_plan
    from fedcm.federation.provision.authority import Authority
    from fedcm.federation.provision.folder import DAYS, create_federation

    federation = read_plan(plan)
    issued = create_federation(federation, output, days or DAYS, only_authority=only_authority)
    root = Authority.open(output).root
    say(f"federation {federation.name} in {output}; its root certificate, valid until {root.ends.date()}:")
    say(root.fingerprint)
    say(f"keep {output}/authority secret, and store a copy of it in a safe place")
    if only_authority:
        say(f"send {output}/invitation.toml to every party, and approve the requests that come back")
    else:
        say("give each of the other folders to its party, over a channel that nobody else can read")
    print_expiry_dates(issued)
