"""How a party joins: it requests a certificate for a key that never leaves its kit, and installs the answer."""

import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedcm.errors import UserError
from fedcm.federation.file_modes import private_files
from fedcm.federation.kit import REQUEST, Kit, read_kit
from fedcm.federation.plan import FederationPlan, Party
from fedcm.federation.provision.certificate_tool import run_tool
from fedcm.federation.provision.invitation import INVITATION_FILE, Invitation, read_invitation
from fedcm.federation.provision.kits import install_kit
from fedcm.federation.provision.request import KINDS, copy_without, read_answer
from fedcm.federation.trust.members import MEMBERS_FILE, read_members
from fedcm.system.files import write_bytes, write_text


def choose_party(invitation: Invitation, *, site: str | None, server: bool, admin: str | None) -> Party:
    """Return the one party that the options name; raise UserError if they name none or several."""
    host = invitation.plan.server.host if server else None
    named = [(kind, name) for kind, name in (("site", site), ("server", host), ("admin", admin)) if name is not None]
    if len(named) != 1:
        raise UserError(f"give exactly one of --site NAME, --server and --admin ADDRESS, got {len(named)} of them")
    return invitation.plan.get_party(*named[0])


def request_first_certificate(kit: Path, party: Party, invitation: Invitation) -> Path:
    """Make a new kit with a key and a request; raise UserError if the folder is not empty."""
    if kit.exists() and (not kit.is_dir() or any(kit.iterdir())):
        raise UserError(
            f"{str(kit)!r} must not exist yet; to renew a kit's certificate use "
            f"`fedcm federation renew {shlex.quote(str(kit))}`"
        )
    return request_certificate(kit, party, invitation)


@private_files()
def request_certificate(kit: Path, party: Party, invitation: Invitation) -> Path:
    """Make a key in a new or existing kit and write the request for its certificate.

    Returns:
        The request's file, which the party sends to the organiser.
    """
    kit = kit.resolve()
    folder = kit / REQUEST
    request = kit / f"{party.name}.request.zip"
    if folder.exists():
        raise UserError(
            f"the kit {str(kit)!r} has requested a certificate already: join the answer to {request.name}, or move "
            f"{REQUEST}/, which holds its key, to another folder and repeat the request"
        )
    kit.mkdir(mode=0o700, parents=True, exist_ok=True)
    kit.chmod(0o700)
    folder.mkdir(mode=0o700)
    try:
        participant = folder / "participant.yml"
        write_text(participant, json.dumps(_make_participant(party, invitation.plan)) + "\n")
        run_tool("cert", "request", "-p", participant, "--out", folder, home=folder)
        write_text(kit / INVITATION_FILE, invitation.to_toml())
        made = folder / request.name
        made.chmod(0o644)
        made.replace(request)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return request


def request_renewal(kit: Path, newer: Path | None = None) -> tuple[Path, Invitation]:
    """Request a new certificate, with a new key, for a kit that has one.

    Args:
        kit: The kit's folder.
        newer: A newer invitation of the same authority, if the plan has changed.

    Returns:
        The request's file and the invitation that it was made from.
    """
    current = read_kit(kit)
    invitation = read_invitation(kit / INVITATION_FILE)
    if newer is not None:
        known, invitation = invitation.root, read_invitation(newer)
        if invitation.root != known:
            raise UserError(f"{str(newer)!r} must have the root certificate {known}, got {invitation.root}")
    return request_certificate(kit, invitation.plan.get_party(current.kind, current.name), invitation), invitation


@private_files()
def join(signed: Path, kit: Path, notify: Callable[[str], None] = lambda message: None) -> Kit:
    """Install the organiser's answer to a kit's request; the kit is then ready, or renewed.

    Args:
        signed: The organiser's answer.
        kit: The kit's folder.
        notify: Called with a message about the operator's files in `local/` that were kept or replaced.

    Raises:
        UserError: If the answer is for another request or from another authority, or the kit has requested nothing.
    """
    kit = kit.resolve()
    folder = kit / REQUEST
    requested = _read_own_request(folder)
    invitation = read_invitation(kit / INVITATION_FILE)
    answer = read_answer(signed)
    if answer.root != invitation.root:
        raise UserError(
            f"the answer's root certificate must be the invitation's, {invitation.root}, got {answer.root}; do not "
            "join before the organiser has told you which one is right"
        )
    if answer.request != requested["request_id"]:
        raise UserError(
            f"{str(signed)!r} must be the answer to this kit's request, but answers another one; send "
            f"{requested['name']}.request.zip to the organiser again"
        )
    party = invitation.plan.get_party(KINDS[requested["kind"]], requested["name"])
    made = folder / "made"
    shutil.rmtree(made, ignore_errors=True)
    copy = folder / "copied.signed.zip"  # the tool requires this ending
    members = copy_without(signed, copy, MEMBERS_FILE)
    fingerprint = ("--fingerprint", invitation.root)
    run_tool("package", copy, "--request-dir", folder, "--workspace", made, *fingerprint, home=folder)
    installed = install_kit(next(made.glob(f"*/prod_*/{party.name}")), kit, party, invitation, notify)
    if members is not None and party.kind == "server":
        install_members(members, installed)
    shutil.rmtree(folder)
    (kit / f"{party.name}.request.zip").unlink(missing_ok=True)
    return installed


def install_members(content: bytes, kit: Kit) -> None:
    """Write the list of members into the server's kit, unless the kit has a newer one.

    A running server reads it within about a second. It is replaced in one step, so the server never reads a part of it.

    Raises:
        UserError: If the federation's root key has not signed it.
    """
    file, new = kit.path / MEMBERS_FILE, kit.path / f".new.{MEMBERS_FILE}"
    write_bytes(new, content)
    new.chmod(0o600)
    try:
        number = read_members(new, kit.root).number
        if not file.exists() or read_members(file, kit.root).number < number:
            new.replace(file)
    finally:
        new.unlink(missing_ok=True)


def _read_own_request(folder: Path) -> dict[str, Any]:
    try:
        return json.loads((folder / "request.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        kit = shlex.quote(str(folder.parent))
        raise UserError(
            f"{str(folder.parent)!r} must be a kit that has requested a certificate; make one with `fedcm federation "
            f"request`, or renew an existing one with `fedcm federation renew {kit}`"
        ) from None


def _make_participant(party: Party, plan: FederationPlan) -> dict[str, Any]:
    """Return the party's entry in the format of the engine's tool."""
    server = plan.server
    details: dict[str, dict[str, Any]] = {
        "server": {"type": "server", "fed_learn_port": server.port, "admin_port": server.port_for_admins}
        | ({"host_names": server.also} if server.also else {}),
        "site": {"type": "client"},
        "admin": {"type": "admin", "role": party.role},
    }
    participant = {"name": party.name, "org": plan.certificate_organisation} | details[party.kind]
    return {"name": plan.name, "participants": [participant]}
