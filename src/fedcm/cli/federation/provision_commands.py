"""`fedcm federation init`, `request`, `approve`, `join` and `renew`: who takes part, by certificates."""

import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from fedcm.errors import UserError
from fedcm.runs.progress import say

Days = Annotated[
    int | None,
    typer.Option(min=1, max=3650, help="How long certificates are valid; 360 unless given.", show_default=False),
]


def init(
    plan: Annotated[Path, typer.Argument(metavar="PLAN.toml", help="Who takes part, and where the server is.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="The federation's folder, a new one.")],
    only_authority: Annotated[
        bool,
        typer.Option("--only-authority", help="Recommended: no kits; everybody makes their own key and asks."),
    ] = False,
    days: Days = None,
) -> None:
    """Found a federation: its authority, which signs certificates, and a folder to hand to each party, its kit.

    With --only-authority the organiser never sees anybody's private key: send DIR/invitation.toml to every party, who
    answer with `fedcm federation request`. A plan:

    - `name = "hospitals"`
    - `sites = ["berlin", "paris"]`
    - `admins = ["lead@example.org"]`
    - `server = {host = "fl.example.org", port = 8002}`

    Example: `fedcm federation init PLAN.toml -o hospitals --only-authority`
    """
    from fedcm.federation.plan import read_plan
    from fedcm.federation.provision.authority import Authority
    from fedcm.federation.provision.provisioning import DAYS, create

    read = read_plan(plan)
    issued = create(read, output, days or DAYS, only_authority=only_authority)
    root = Authority.open(output).root
    say(f"federation {read.name} in {output}; its root certificate, valid until {root.ends.date()}:")
    say(root.fingerprint)
    say(f"keep {output}/authority to yourself, and a copy of it in a safe place")
    if only_authority:
        say(f"send {output}/invitation.toml to every party, and approve the requests that come back")
    else:
        say("hand each of the other folders to its party, in a way that nobody else can read it")
    _show_ends(issued)


def request(
    invitation: Annotated[Path, typer.Argument(metavar="INVITATION.toml", help="From the organiser.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="KIT", help="The kit's folder, a new one.")],
    site: Annotated[str | None, typer.Option(metavar="NAME", help="Ask for this site.")] = None,
    server: Annotated[bool, typer.Option("--server", help="Ask for the server.")] = False,
    admin: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Ask for this admin or viewer.")] = None,
) -> None:
    """Ask for a certificate, with a key that is made in the kit and never leaves it.

    Send the request to the organiser, and `fedcm federation join` with the answer. Compare both fingerprints with the
    organiser, by telephone for one.

    Example: `fedcm federation request invitation.toml --site berlin -o kit`
    """
    from fedcm.federation.provision.invitation import read_invitation
    from fedcm.federation.provision.membership import ask

    invited = read_invitation(invitation)
    host = invited.plan.server.host if server else None
    chosen = [(kind, name) for kind, name in (("site", site), ("server", host), ("admin", admin)) if name is not None]
    if len(chosen) != 1:
        raise UserError(f"a request is for one of --site NAME, --server and --admin ADDRESS, got {len(chosen)} of them")
    party = invited.plan.party(*chosen[0])
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise UserError(
            f"{str(output)!r} must not be there yet; a kit's certificate is renewed by "
            f"`fedcm federation renew {shlex.quote(str(output))}`"
        )
    _tell_request(ask(output, party, invited), invited, output)


def approve(
    request: Annotated[Path, typer.Argument(metavar="REQUEST.zip", help="From a party.")],
    authority: Annotated[Path, typer.Option(metavar="DIR", help="The authority's folder, DIR/authority.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="SIGNED.zip", help="The answer; beside the request unless given."),
    ] = None,
    days: Days = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Sign a party's request, its first or for renewal, and send the answer back. The answer holds no secret.

    The plan in DIR/authority/plan.toml says who may have which certificate. Before you say yes, compare the fingerprint
    with the party, by telephone for one.

    Example: `fedcm federation approve berlin.request.zip --authority hospitals/authority`
    """
    from fedcm.federation.provision.authority import Authority
    from fedcm.federation.provision.provisioning import DAYS
    from fedcm.federation.provision.request import read_request, reject_unplanned

    signing = Authority.open(authority)
    asked = read_request(request)
    party = reject_unplanned(asked, signing.plan)
    say(
        f"{party.kind} {party.name} asks for a certificate of {asked.federation}, in the role {party.role}, for the key"
    )
    say(asked.fingerprint)
    for before in signing.issued():
        if before.party == party:
            say(f"its last certificate is valid until {before.ends.date()}")
    if not yes:
        if not sys.stdin.isatty():
            raise UserError("there is nobody to ask whether to sign; compare the fingerprint, then give --yes")
        if not typer.confirm("Sign it?", err=True):
            say("not signed")
            raise typer.Exit(1)
    signed = output if output is not None else request.with_name(f"{party.name}.signed.zip")
    issued = signing.sign(asked, signed, days or DAYS)
    say(f"signed until {issued.ends.date()}; send this back, for `fedcm federation join {signed.name} KIT`:")
    print(signed)


def join(
    signed: Annotated[Path, typer.Argument(metavar="SIGNED.zip", help="The organiser's answer.")],
    kit: Annotated[Path, typer.Argument(metavar="KIT", help="The folder with the request.")],
) -> None:
    """Make a kit ready, or renew it, with the organiser's answer to its request.

    An answer whose root certificate is not the invitation's is refused. What else is in the kit stays.

    Example: `fedcm federation join berlin.signed.zip kit`
    """
    from fedcm.federation.certificate import read_certificate
    from fedcm.federation.provision.membership import join as join_federation

    ready = join_federation(signed, kit)
    ends = read_certificate(ready.certificate).ends.date()
    say(f"the kit of the {ready.kind} {ready.name} is ready, with a certificate until {ends}")
    say("if it is being served, start it again for the new certificate to count; how to go on:")
    print(kit / "README.md")


def renew(
    folder: Annotated[Path, typer.Argument(metavar="KIT|DIR", help="A kit, or a federation's folder.")],
    days: Days = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="In a federation's folder: for this party alone; may be repeated."),
    ] = None,
    invitation: Annotated[
        Path | None,
        typer.Option(metavar="INVITATION.toml", help="In a kit: a newer one, where the plan has changed."),
    ] = None,
) -> None:
    """Renew certificates before they end, and tell who ends when.

    In a kit: make a new key and a request, which goes to the organiser like the first; `fedcm federation join` takes
    the answer. Settings, state and runs stay, and the old certificate is kept in `old/`.

    In the organiser's folder: do all of that for the kits in it. Whoever --only names gets a kit if there is none, such
    as a site that was added to DIR/authority/plan.toml; DIR/invitation.toml is written anew from there.

    Example: `fedcm federation renew kit`
    """
    from fedcm.federation.provision.authority import Authority
    from fedcm.federation.provision.membership import ask_again
    from fedcm.federation.provision.provisioning import DAYS, holds_federation
    from fedcm.federation.provision.provisioning import renew as renew_kits

    if not holds_federation(folder):
        if days is not None or only:
            raise UserError("--days and --only are the organiser's, for a federation's folder, and this is none")
        asked, invited = ask_again(folder, invitation)
        _tell_request(asked, invited, folder)
        return
    if invitation is not None:
        raise UserError("--invitation is for a kit, and this is a federation's folder, which has its own")
    if not renew_kits(folder, days or DAYS, only or ()):
        say("there are no kits here: each party renews its own by `fedcm federation renew KIT`, and you approve")
    _show_ends(Authority.open(folder).issued())


def _tell_request(request: Path, invited: Any, kit: Path) -> None:
    from fedcm.federation.provision.request import read_request

    say(f"the root certificate of {invited.plan.name}, to compare with the organiser:")
    say(invited.root)
    say("your key, for the organiser to compare with you:")
    say(read_request(request).fingerprint)
    say(f"send this to the organiser, then `fedcm federation join SIGNED.zip {shlex.quote(str(kit))}`:")
    print(request)


def _show_ends(issued: Iterable[Any]) -> None:
    """A line a party: until when its certificate is valid."""
    for one in sorted(issued, key=lambda one: one.ends):
        print(f"{one.ends.date()}  {one.party.kind:6}  {one.party.name}")
