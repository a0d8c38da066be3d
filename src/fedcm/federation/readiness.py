"""What must hold before a kit is served: it is the right one and whole, nobody else serves it, its ports are free."""

import errno
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from fedcm.errors import UserError
from fedcm.federation.kit import Kit, read_kit
from fedcm.system.locks import is_locked

LOCK = ".lock"
_WAIT_FOR_LAST = 2.0  # seconds for a predecessor that is being ended


def ready_kit(path: Path, kind: str) -> Kit:
    """UserError where it is none that this command can serve."""
    if find_spec("nvflare") is None:
        raise UserError("a federation needs the extra packages; install them with `pip install 'fedcm[federation]'`")
    kit = read_kit(path.absolute())
    if kit.kind != kind:
        whose = (
            "an admin's"
            if kit.kind == "admin"
            else f"a {kit.kind}'s; start it with `fedcm federation {kit.kind} {path}`"
        )
        raise UserError(f"`fedcm federation {kind}` must be given a {kind}'s kit, and {str(path)!r} is {whose}")
    for file, what in ((kit.certificate, "certificate"), (kit.key, "private key"), (kit.root, "root certificate")):
        if not (file.is_file() and os.access(file, os.R_OK)):
            raise UserError(f"a kit must hold its {what}, and {str(file)!r} is not there or not readable for this user")
    if not os.access(kit.path, os.W_OK):
        raise UserError(f"the engine writes its log and its state into the kit, and {str(path)!r} is not writable")
    return kit


def is_served(kit: Path) -> bool:
    """Is a command running on this kit?"""
    return is_locked(kit / LOCK)


@contextmanager
def only_one(kit: Path) -> Iterator[int]:
    """The lock is the keeper's too, so that it goes when everything that this command started has gone."""
    descriptor = os.open(kit / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    until = time.monotonic() + _WAIT_FOR_LAST
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


def taken_ports(kit: Kit) -> list[int]:
    """Those of a server's ports at which somebody else listens; the engine would share them without a word."""
    return [port for port in dict.fromkeys((kit.port, kit.admin_port or kit.port)) if _is_taken(port)]


def reject_taken_ports(kit: Kit) -> None:
    if kit.kind == "server" and (taken := taken_ports(kit)):
        raise UserError(
            f"a server must have its ports for itself, and at {' and '.join(map(str, taken))} another process listens; "
            "`ss -ltnp` tells which"
        )


def _is_taken(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # what was closed a moment ago does not count
        try:
            trial.bind(("", port))
        except OSError as error:
            if error.errno == errno.EACCES:
                raise UserError(f"port {port} is reserved for the system's own services; take one above 1023") from None
            return True
    return False
