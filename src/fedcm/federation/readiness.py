"""Checks before a kit is served: it is the right kit, it is complete, it is not served already, its ports are free."""

import errno
import fcntl
import os
import socket
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedcm.errors import UserError
from fedcm.federation.engine import reject_outdated_kit, require_engine
from fedcm.federation.kit import SITE_FILE, Kit, read_kit
from fedcm.federation.site.state_cipher import read_state_key
from fedcm.federation.trust.members import MEMBERS_FILE, read_members
from fedcm.system.files import is_locked

LOCK = ".lock"
_LOCK_PATIENCE = 2.0  # seconds to wait for a previous command that is ending


def read_servable_kit(path: Path, kind: str) -> Kit:
    """Read the kit of a server or site and check that it can be served.

    Args:
        path: The kit's folder.
        kind: "server" or "site".

    Raises:
        UserError: If it is not a kit of this kind, it is incomplete or outdated, or the engine is not installed.
    """
    require_engine()
    kit = read_kit(path.absolute())
    if kit.kind != kind:
        owner = (
            "an admin's"
            if kit.kind == "admin"
            else f"a {kit.kind}'s; start it with `fedcm federation {kit.kind} {path}`"
        )
        raise UserError(f"`fedcm federation {kind}` needs a {kind}'s kit, but {str(path)!r} is {owner}")
    for file, what in ((kit.certificate, "certificate"), (kit.key, "private key"), (kit.root, "root certificate")):
        if not (file.is_file() and os.access(file, os.R_OK)):
            raise UserError(f"a kit must contain its {what}, but {str(file)!r} is missing or not readable by this user")
    if not os.access(kit.path, os.W_OK):
        raise UserError(f"the engine writes logs and state into the kit, but {str(path)!r} is not writable")
    reject_outdated_kit(kit)
    return kit


def is_served(kit: Path) -> bool:
    """Return whether a command is serving this kit."""
    return is_locked(kit / LOCK)


@contextmanager
def lock_kit(kit: Path) -> Iterator[int]:
    """Hold the kit's lock and yield its file descriptor.

    The keeper process inherits the descriptor, so the kit stays locked until all processes of the command have ended.

    Raises:
        UserError: If another process serves the kit.
    """
    descriptor = os.open(kit / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    until = time.monotonic() + _LOCK_PATIENCE
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise UserError(
                        f"the kit {str(kit)!r} is being served by another process; stop that one first"
                    ) from None
                time.sleep(0.05)
        yield descriptor
    finally:
        os.close(descriptor)


def find_taken_ports(kit: Kit) -> list[int]:
    """Return the ports of a server's kit at which another process listens.

    The engine itself would share such a port without an error.
    """
    return [port for port in dict.fromkeys((kit.port, kit.admin_port or kit.port)) if _is_taken(port)]


def reject_taken_ports(kit: Kit) -> None:
    """Raise UserError if another process listens at a port of the server."""
    if kit.kind == "server" and (taken := find_taken_ports(kit)):
        raise UserError(
            f"a server's ports must be free, but another process listens at {' and '.join(map(str, taken))}; "
            "`ss -ltnp` shows which"
        )


def reject_bad_members(kit: Kit) -> None:
    """Raise UserError if a server's kit has no valid list of members, without which nobody could connect."""
    if kit.kind != "server":
        return
    try:
        read_members(kit.path / MEMBERS_FILE, kit.root)
    except UserError as error:
        raise UserError(
            f"{error}: the organiser writes it with `fedcm federation renew DIR` or `fedcm federation remove`, as "
            f"authority/{MEMBERS_FILE}; copy it into the kit"
        ) from None


def reject_bad_state_key(kit: Kit) -> None:
    """Raise UserError if a site encrypts its client states and its key cannot be used; see `read_state_key`."""
    if kit.kind != "site":
        return
    try:
        storage = tomllib.loads((kit.path / SITE_FILE).read_text(encoding="utf-8")).get("storage")
    except (OSError, ValueError):
        return  # the site says what is wrong when it loads its settings
    key = storage.get("key") if isinstance(storage, dict) else None
    if isinstance(key, str):
        read_state_key(kit.path, key)


def _is_taken(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # ignore connections that have just been closed
        try:
            trial.bind(("", port))
        except OSError as error:
            if error.errno == errno.EACCES:
                raise UserError(f"port {port} is reserved for the system; use one above 1023") from None
            return True
    return False
