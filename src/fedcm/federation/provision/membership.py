"""A party's way in: it asks for a certificate with a key that never leaves its kit, and joins with the answer."""

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

from fedcm.errors import UserError
from fedcm.federation.kit import REQUEST, Kit, read_kit
from fedcm.federation.plan import FederationPlan, Party
from fedcm.federation.provision.certificate_tool import run_tool
from fedcm.federation.provision.invitation import FILE as INVITATION
from fedcm.federation.provision.invitation import Invitation, read_invitation
from fedcm.federation.provision.kits import install
from fedcm.federation.provision.request import KINDS
from fedcm.federation.provision.signed import read_signed
from fedcm.system.files import write_text


def ask(kit: Path, party: Party, invitation: Invitation) -> Path:
    """Make a key in the kit, new or to be renewed; what is returned, the request, is for the organiser."""
    kit = kit.resolve()
    folder = kit / REQUEST
    request = kit / f"{party.name}.request.zip"
    if folder.exists():
        raise UserError(
            f"the kit {str(kit)!r} has asked already: join the answer to {request.name}, or move {REQUEST}/, "
            "which has the key for it, to another folder and ask anew"
        )
    kit.mkdir(mode=0o700, parents=True, exist_ok=True)
    kit.chmod(0o700)
    folder.mkdir(mode=0o700)
    try:
        participant = folder / "participant.yml"
        write_text(participant, json.dumps(_participant(party, invitation.plan)) + "\n")
        run_tool("cert", "request", "-p", participant, "--out", folder, home=folder)
        write_text(kit / INVITATION, invitation.text())
        made = folder / request.name
        made.chmod(0o644)
        made.replace(request)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return request


def ask_again(kit: Path, newer: Path | None = None) -> tuple[Path, Invitation]:
    """For a new certificate, with a new key, from a kit that has one; the request, and the invitation that it answers.

    A newer invitation tells of a changed plan; it must be the same authority's.
    """
    whole = read_kit(kit)
    invitation = read_invitation(kit / INVITATION)
    if newer is not None:
        known, invitation = invitation.root, read_invitation(newer)
        if invitation.root != known:
            raise UserError(f"{str(newer)!r} must be of the root certificate {known}, and is of {invitation.root}")
    return ask(kit, invitation.plan.party(whole.kind, whole.name), invitation), invitation


def join(signed: Path, kit: Path) -> Kit:
    """Take the organiser's answer to the kit's request: the kit is then ready, or renewed."""
    kit = kit.resolve()
    folder = kit / REQUEST
    told = _told(folder)
    invitation = read_invitation(kit / INVITATION)
    answer = read_signed(signed)
    if answer.root != invitation.root:
        raise UserError(
            f"the answer's root certificate must be the invitation's, {invitation.root}, and is {answer.root}; ask the "
            "organiser which is right, and do not join before you know"
        )
    if answer.request != told["request_id"]:
        raise UserError(
            f"{str(signed)!r} must be the answer to this kit's request, and is the answer to another; send "
            f"{told['name']}.request.zip to the organiser again"
        )
    party = invitation.plan.party(KINDS[told["kind"]], told["name"])
    made = folder / "made"
    shutil.rmtree(made, ignore_errors=True)
    copied = folder / "copied.signed.zip"  # the tool wants this ending
    shutil.copyfile(signed, copied)
    fingerprint = ("--fingerprint", invitation.root)
    run_tool("package", copied, "--request-dir", folder, "--workspace", made, *fingerprint, home=folder)
    whole = install(next(made.glob(f"*/prod_*/{party.name}")), kit, party, invitation)
    shutil.rmtree(folder)
    (kit / f"{party.name}.request.zip").unlink(missing_ok=True)
    return whole


def _told(folder: Path) -> dict[str, Any]:
    try:
        return json.loads((folder / "request.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        kit = shlex.quote(str(folder.parent))
        raise UserError(
            f"{str(folder.parent)!r} must be a kit that has asked for a certificate, by `fedcm federation request` or "
            f"`fedcm federation renew {kit}`, and is not"
        ) from None


def _participant(party: Party, plan: FederationPlan) -> dict[str, Any]:
    """In the words of the engine's tool."""
    server = plan.server
    details: dict[str, dict[str, Any]] = {
        "server": {"type": "server", "fed_learn_port": server.port, "admin_port": server.port_for_admins}
        | ({"host_names": server.also} if server.also else {}),
        "site": {"type": "client"},
        "admin": {"type": "admin", "role": party.role},
    }
    return {"name": plan.name, "participants": [{"name": party.name, "org": plan.org} | details[party.kind]]}
