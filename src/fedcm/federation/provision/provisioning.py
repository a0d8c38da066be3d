"""A whole federation in one folder: its authority, its invitation, and the kits that were made here."""

import secrets
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fedcm.errors import UserError, suggest
from fedcm.federation.kit import REQUEST, read_kit
from fedcm.federation.plan import FederationPlan, Party
from fedcm.federation.provision import authority as authorities
from fedcm.federation.provision.authority import Authority, Issued
from fedcm.federation.provision.certificate_tool import reject_without_engine
from fedcm.federation.provision.invitation import FILE as INVITATION
from fedcm.federation.provision.membership import ask, join
from fedcm.federation.provision.request import read_request
from fedcm.system.files import write_text

DAYS = 360
_AT_ONCE = 4  # calls of the engine's tool, a process of one core each


def create(plan: FederationPlan, folder: Path, days: int = DAYS, *, only_authority: bool = False) -> list[Issued]:
    """The folder appears whole or not at all; one with anything in it is refused."""
    reject_without_engine()
    folder = folder.absolute()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(
            f"{str(folder)!r} must not be there yet, because keys are never written over; give another with -o"
            + (", or renew its certificates with `fedcm federation renew`" if holds_federation(folder) else "")
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    making = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}")
    making.mkdir(mode=0o700)
    try:
        authority = Authority.create(making / authorities.FOLDER, plan)
        write_text(making / INVITATION, authority.invitation.text())
        issued = [] if only_authority else _each(plan.parties, lambda party: _provide(making, authority, party, days))
        _settle(making)
        making.replace(folder)
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)
        raise
    return issued


def renew(folder: Path, days: int = DAYS, only: Iterable[str] = ()) -> list[Issued]:
    """New certificates for the kits in the folder, or for those named, who get a kit if they have none.

    The invitation is written anew from the plan, to which sites may have been added.
    """
    authority = Authority.open(folder)
    plan, named = authority.plan, list(only)
    write_text(folder / INVITATION, authority.invitation.text())
    known = {party.name: party for party in plan.parties}
    for name in named:
        if name not in known:
            raise UserError(f"the plan of {plan.name!r} has no {name!r}; {suggest(name, known)}")
    chosen = [known[name] for name in named] or [party for party in plan.parties if (folder / party.place).exists()]
    for party in chosen:
        if (folder / party.place / "startup").exists():
            read_kit(folder / party.place)
    return _each(chosen, lambda party: _provide(folder, authority, party, days))


def holds_federation(folder: Path) -> bool:
    return (folder / authorities.FOLDER / "plan.toml").is_file()


def _provide(folder: Path, authority: Authority, party: Party, days: int) -> Issued:
    """All three steps in one place: ask, sign, join."""
    kit = folder / party.place
    request = ask(kit, party, authority.invitation)
    signed = kit / REQUEST / "signed.zip"
    try:
        issued = authority.sign(read_request(request), signed, days)
        join(signed, kit)
    except BaseException:
        shutil.rmtree(kit / REQUEST, ignore_errors=True)
        request.unlink(missing_ok=True)
        raise
    return issued


def _each(parties: list[Party], provide: Callable[[Party], Issued]) -> list[Issued]:
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(provide, parties))


def _settle(folder: Path) -> None:
    for path in (folder, folder / authorities.FOLDER, folder / "sites", folder / "admins"):
        if path.is_dir():
            path.chmod(0o700)
    for path in (folder / authorities.FOLDER).rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    (folder / INVITATION).chmod(0o644)
