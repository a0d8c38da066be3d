"""Is all well with a kit, before anything starts? A line each, with what to do where it is not.

The kit's files, its key and certificate; the way to the server and its clock; the data, and a model on them.
"""

import ctypes
import os
import shutil
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from fedcm.errors import UserError
from fedcm.federation.check.credentials import look_at_certificate, look_at_key, look_at_signature
from fedcm.federation.check.finding import Finding, failed, found, good, warning
from fedcm.federation.check.reaching import Greeting, addresses, greet, is_named, reach
from fedcm.federation.kit import Kit, read_kit
from fedcm.federation.readiness import is_served, taken_ports

_CLOCK = 60  # seconds by which clocks may differ
_DISK = (1, 5)  # GB free: fails below the first, warns below the second
_UNSYNCHRONISED = 5  # as the kernel answers where nothing keeps its clock right


def checked(path: Path, experiment: Path | None = None) -> Iterator[Finding]:
    """What there is to say, as it is found. UserError where there is no kit, or no such experiment."""
    if find_spec("nvflare") is None:
        raise UserError("a federation needs the extra packages; install them with `pip install 'fedcm[federation]'`")
    kit = read_kit(path.absolute())
    if experiment is not None:
        _reject_bad_experiment(kit, experiment)
    yield from _files(kit)
    for about, look in (
        ("private key", look_at_key),
        ("certificate", look_at_certificate),
        ("key and certificate", look_at_signature),
        ("disk", _disk),
        ("server", _way),
    ):
        yield from found(about, partial(look, kit))
    if kit.kind == "site":
        yield from found("data", partial(_site, kit, experiment))
    elif kit.kind == "server":
        yield from found("test data", partial(_test_data, kit))


def _reject_bad_experiment(kit: Kit, experiment: Path) -> None:
    from fedcm.config.overrides import read_table

    if kit.kind != "site":
        raise UserError(f"--experiment is tried on a site's data, and {str(kit.path)!r} is a kit of the {kit.kind}")
    read_table(experiment)


def _files(kit: Kit) -> Iterator[Finding]:
    own = ["local", "site.toml"] if kit.kind == "site" else ["local"]
    needed = [kit.certificate, kit.key, kit.root, *(kit.path / name for name in own)]
    missing = [str(file.relative_to(kit.path)) for file in needed if not file.exists()]
    who = f"{kit.kind} {kit.name} of {kit.federation}"
    if missing:
        yield failed("kit", f"of {who}, and it lacks {', '.join(missing)}; unpack it again, or ask the organiser")
    elif not os.access(kit.path, os.W_OK):
        yield failed("kit", f"of {who}, and it must be writable for this user; run this as the user that will serve it")
    else:
        yield good("kit", f"{who}{', being served now' if is_served(kit.path) else ''}")


def _disk(kit: Kit) -> Iterator[Finding]:
    free = shutil.disk_usage(kit.path).free / 1e9
    told = f"{free:.1f} GB free for logs, runs and checkpoints"
    make = failed if free < _DISK[0] else warning if free < _DISK[1] else good
    yield make("disk", told if make is good else f"{told}; make room, or move the kit")


def _way(kit: Kit) -> Iterator[Finding]:
    name = _name(kit)
    if kit.kind == "server" and not is_served(kit.path):
        yield from _ports(kit)
        yield name
        yield _clock(None)
        return
    yield name
    answer = _answer(kit) if name.state == "good" else None
    if answer is not None:
        yield answer
    greeting = greet(kit) if answer is not None and answer.state == "good" else None
    if greeting is not None:
        yield _judged(kit, greeting)
    yield _clock(None if greeting is None else greeting.ahead)


def _name(kit: Kit) -> Finding:
    try:
        return good("server's name", f"{kit.host} is {', '.join(addresses(kit.host, kit.port))}")
    except OSError as error:
        make = warning if kit.kind == "server" else failed
        return make(
            "server's name", f"{kit.host} is not known here ({_reason(error)}); add it to the DNS or /etc/hosts"
        )


def _answer(kit: Kit) -> Finding:
    where = f"{kit.host}:{kit.port}"
    try:
        reach(kit.host, kit.port)
    except OSError as error:
        how = "start it there with `fedcm federation server`, or open the port in the firewalls between"
        return failed("server", f"it does not answer at {where} ({_reason(error)}); {how}")
    return good("server", f"it answers at {where}")


def _ports(kit: Kit) -> Iterator[Finding]:
    taken = taken_ports(kit)
    if taken:
        others = " and ".join(map(str, taken))
        yield failed(
            "ports", f"the server must have them for itself, and another process listens at {others}; see `ss -ltnp`"
        )
    else:
        yield good("ports", " and ".join(map(str, dict.fromkeys((kit.port, kit.admin_port)))) + " are free")


def _judged(kit: Kit, greeting: Greeting) -> Finding:
    if greeting.failure:
        return failed(
            "mutual TLS", f"{greeting.failure}; do both kits come from the same federation, and do both hold now?"
        )
    if not is_named(kit.host, greeting.names):
        names = ", ".join(greeting.names)
        return failed(
            "mutual TLS", f"who answers must be {kit.host}, and is {names}; ask the organiser for a certificate with it"
        )
    return good("mutual TLS", f"both sides accept each other; the server is {kit.host}")


def _clock(ahead: float | None) -> Finding:
    """Against the server's where it told its own, to the second."""
    if ahead is None:
        return _own_clock()
    if abs(ahead) <= _CLOCK:
        return good("clock", f"within {max(1, round(abs(ahead)))} s of the server's, as its handshake tells it")
    way = "behind" if ahead > 0 else "ahead of"
    how = "set the wrong one of the two, such as by `timedatectl set-ntp true`"
    return failed("clock", f"{abs(ahead):.0f} s {way} the server's, as its handshake tells it; {how}")


def _own_clock() -> Finding:
    told = f"the server's is not known; here it is {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
    match _is_kept():
        case True:
            return good("clock", f"{told}, and the system says that its clock is kept right")
        case False:
            return warning(
                "clock", f"{told}, and the system says that nothing keeps it right; `timedatectl` tells more"
            )
        case _:
            return warning("clock", f"{told}, and the system does not say whether it is kept right; compare it")


def _is_kept() -> bool | None:
    """Whether the kernel counts its clock as synchronised; None where it does not say."""
    if sys.platform != "linux":
        return None
    answer = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(512))  # all zero: only a question
    return None if answer < 0 else answer != _UNSYNCHRONISED


def _test_data(kit: Kit) -> Iterator[Finding]:
    from fedcm.federation.server.server_settings import load_server_settings, load_test_data

    examples = load_test_data(kit.path, load_server_settings(kit.path))
    if examples is None:
        yield warning(
            "test data", 'none, so runs are not evaluated; name some in server.toml: [test] source = "test.npz"'
        )
    else:
        yield good("test data", f"{examples.size} examples of {tuple(examples.features.shape[1:])}")


def _site(kit: Kit, experiment: Path | None) -> Iterator[Finding]:
    from fedcm.federation.check.fitting import look_at_data, try_experiment
    from fedcm.federation.site_settings import load_settings

    settings = load_settings(kit.path)
    yield good("site.toml", f"data from {settings.data.source}")
    data = yield from look_at_data(kit, settings)
    if experiment is not None:
        yield from found("experiment", partial(try_experiment, kit, settings, data, experiment))


def _reason(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
