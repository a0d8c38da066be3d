"""The organiser's folder: the authority, the invitation, and the kits that were made here."""

import secrets
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fedcm.errors import UserError, suggest
from fedcm.federation.engine import require_engine
from fedcm.federation.file_modes import private_files
from fedcm.federation.kit import REQUEST, read_kit
from fedcm.federation.plan import FederationPlan, Party
from fedcm.federation.provision.authority import AUTHORITY_FOLDER, Authority, IssuedCertificate
from fedcm.federation.provision.invitation import INVITATION_FILE
from fedcm.federation.provision.membership import install_members, join, request_certificate
from fedcm.federation.provision.request import read_request
from fedcm.system.files import write_text

DAYS = 360
_PARALLEL_CALLS = 4  # of the engine's tool; each is a process that uses one core


@private_files()
def create_federation(
    plan: FederationPlan, folder: Path, days: int = DAYS, *, only_authority: bool = False
) -> list[IssuedCertificate]:
    """Make a federation in a new folder, which appears complete or not at all.

    Args:
        plan: Who takes part.
        folder: The organiser's folder; it must not exist, or be empty.
        days: Validity of the certificates.
        only_authority: Whether to make no kits, because every party requests its own certificate.

    Returns:
        The certificates of the kits that were made.
    """
    require_engine()
    folder = folder.absolute()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(
            f"{str(folder)!r} must not exist yet, because keys are never overwritten; give another folder with -o"
            + (", or renew its certificates with `fedcm federation renew`" if is_federation(folder) else "")
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}")
    unfinished.mkdir(mode=0o700)
    try:
        authority = Authority.create(unfinished / AUTHORITY_FOLDER, plan)
        write_text(unfinished / INVITATION_FILE, authority.invitation.to_toml())
        parties = [] if only_authority else plan.parties
        issued = _map_parties(parties, lambda party: _make_kit(unfinished, authority, party, days))
        _deliver_members(unfinished, authority)
        _restrict_access(unfinished)
        unfinished.replace(folder)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return issued


@private_files()
def renew_kits(
    folder: Path,
    days: int = DAYS,
    only: Iterable[str] = (),
    notify: Callable[[str], None] = lambda message: None,
) -> list[IssuedCertificate]:
    """Renew the kits in the organiser's folder, and write the invitation again from the plan.

    Args:
        folder: The organiser's folder.
        days: Validity of the certificates.
        only: Names of the parties to renew; those without a kit get one. By default all kits are renewed.
        notify: Called with a message about files in a kit's `local/` that were kept or replaced.
    """
    authority = Authority.open(folder)
    authority.update_members()
    plan, names = authority.plan, list(only)
    write_text(folder / INVITATION_FILE, authority.invitation.to_toml())
    known = {party.name: party for party in plan.parties}
    for name in names:
        if name not in known:
            raise UserError(f"the plan of {plan.name!r} has no {name!r}; {suggest(name, known)}")
    existing = [party for party in plan.parties if (folder / party.kit_folder).exists()]
    chosen = [known[name] for name in names] or existing
    for party in chosen:
        if (folder / party.kit_folder / "startup").exists():
            read_kit(folder / party.kit_folder)
    issued = _map_parties(chosen, lambda party: _make_kit(folder, authority, party, days, notify))
    _deliver_members(folder, authority)
    return issued


def remove_party(authority: Authority, name: str, *, keep_place: bool = False) -> list[str]:
    """End the validity of all certificates that were signed for a site or an admin.

    Args:
        authority: The federation's authority.
        name: The site's name or the admin's address.
        keep_place: Whether the party stays in the plan, so that it may request a new certificate.

    Returns:
        The serial numbers of the certificates that were valid until now.
    """
    folder = authority.folder.parent
    if not keep_place:
        authority.take_out_of_plan(name)
        if (folder / INVITATION_FILE).exists():
            write_text(folder / INVITATION_FILE, authority.invitation.to_toml())
    removed = authority.remove_certificates(name)
    _deliver_members(folder, authority)
    return removed


def _deliver_members(folder: Path, authority: Authority) -> None:
    """Copy the list of members into the server's kit, if it is in the organiser's folder."""
    if (folder / "server" / "startup").is_dir():
        install_members(authority.members_file.read_bytes(), read_kit(folder / "server"))


def is_federation(folder: Path) -> bool:
    """Return whether this is an organiser's folder."""
    return (folder / AUTHORITY_FOLDER / "plan.toml").is_file()


def _make_kit(
    folder: Path,
    authority: Authority,
    party: Party,
    days: int,
    notify: Callable[[str], None] = lambda message: None,
) -> IssuedCertificate:
    """Request, sign and join in one place."""
    kit = folder / party.kit_folder
    request = request_certificate(kit, party, authority.invitation)
    signed = kit / REQUEST / "signed.zip"
    try:
        issued = authority.sign(read_request(request), signed, days)
        join(signed, kit, notify)
    except BaseException:
        shutil.rmtree(kit / REQUEST, ignore_errors=True)
        request.unlink(missing_ok=True)
        raise
    return issued


def _map_parties(parties: list[Party], make_kit: Callable[[Party], IssuedCertificate]) -> list[IssuedCertificate]:
    with ThreadPoolExecutor(_PARALLEL_CALLS) as pool:
        return list(pool.map(make_kit, parties))


def _restrict_access(folder: Path) -> None:
    for path in (folder, folder / AUTHORITY_FOLDER, folder / "sites", folder / "admins"):
        if path.is_dir():
            path.chmod(0o700)
    for path in (folder / AUTHORITY_FOLDER).rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    (folder / INVITATION_FILE).chmod(0o644)
