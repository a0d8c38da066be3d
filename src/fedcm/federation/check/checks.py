"""All checks of a kit before it is served: its files, key and certificate, the connection, the clock, the data."""

import ctypes
import os
import shutil
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from fedcm.data.federated import get_input_shape
from fedcm.errors import UserError
from fedcm.federation.check.clock import find_invalid_certificate, read_clock
from fedcm.federation.check.connection import Handshake, do_handshake, matches_hostname, reach_port, resolve_host
from fedcm.federation.check.credentials import check_certificate, check_key, check_signature
from fedcm.federation.check.result import CheckResult, make_failure, make_success, make_warning, run_check
from fedcm.federation.engine import reject_outdated_kit, require_engine
from fedcm.federation.kit import Kit, read_kit
from fedcm.federation.readiness import find_taken_ports, is_served

_DISK = (1, 5)  # GB free: fails below the first, warns below the second
_UNSYNCHRONISED = 5  # what adjtimex returns if nothing synchronises the clock


def check_kit(path: Path, experiment: Path | None = None) -> Iterator[CheckResult]:
    """Check a kit and yield each result as soon as it is known.

    Args:
        path: The kit's folder.
        experiment: For a site's kit, also check this experiment on the site's data.

    Raises:
        UserError: If the folder is not a kit, there is no such experiment, or the engine is not installed.
    """
    require_engine()
    kit = read_kit(path.absolute())
    if experiment is not None:
        _reject_bad_experiment(kit, experiment)
    yield from run_check("kit", partial(_check_files, kit))
    for about, check in (
        ("private key", check_key),
        ("certificate", check_certificate),
        ("key and certificate", check_signature),
        ("disk", _check_disk),
        ("server", _check_connection),
        ("clock", _check_clock),
    ):
        yield from run_check(about, partial(check, kit))
    if kit.kind == "site":
        yield from run_check("data", partial(_check_site, kit, experiment))
    elif kit.kind == "server":
        yield from run_check("test data", partial(_check_test_data, kit))


def _reject_bad_experiment(kit: Kit, experiment: Path) -> None:
    from fedcm.config.overrides import read_table

    if kit.kind != "site":
        raise UserError(f"--experiment needs a site's kit, but {str(kit.path)!r} is the kit of the {kit.kind}")
    read_table(experiment)


def _check_files(kit: Kit) -> Iterator[CheckResult]:
    own = ["local", "site.toml"] if kit.kind == "site" else ["local"]
    needed = [kit.certificate, kit.key, kit.root, *(kit.path / name for name in own)]
    missing = [str(file.relative_to(kit.path)) for file in needed if not file.exists()]
    owner = f"{kit.kind} {kit.name} of {kit.federation}"
    if missing:
        yield make_failure("kit", f"{owner}: {', '.join(missing)} is missing; copy the kit again, or ask the organiser")
    elif not os.access(kit.path, os.W_OK):
        yield make_failure(
            "kit", f"{owner}: this user must be able to write to it; run this as the user that serves it"
        )
    else:
        reject_outdated_kit(kit)
        yield make_success("kit", f"{owner}{', being served now' if is_served(kit.path) else ''}")


def _check_disk(kit: Kit) -> Iterator[CheckResult]:
    free = shutil.disk_usage(kit.path).free / 1e9
    message = f"{free:.1f} GB free for logs, runs and checkpoints"
    make = make_failure if free < _DISK[0] else make_warning if free < _DISK[1] else make_success
    yield make("disk", message if make is make_success else f"{message}; free some space, or move the kit")


def _check_connection(kit: Kit) -> Iterator[CheckResult]:
    name = _check_host_name(kit)
    if kit.kind == "server" and not is_served(kit.path):
        yield _check_free_ports(kit)
        yield name
        return
    yield name
    if name.state == "good":
        port = _check_server_port(kit)
        yield port
        if port.state == "good":
            yield _check_handshake(kit, do_handshake(kit))


def _check_host_name(kit: Kit) -> CheckResult:
    try:
        return make_success("server's name", f"{kit.host} is {', '.join(resolve_host(kit.host, kit.port))}")
    except OSError as error:
        make = make_warning if kit.kind == "server" else make_failure
        return make(
            "server's name", f"{kit.host} is not known here ({_describe_error(error)}); add it to the DNS or /etc/hosts"
        )


def _check_server_port(kit: Kit) -> CheckResult:
    address = f"{kit.host}:{kit.port}"
    try:
        reach_port(kit.host, kit.port)
    except OSError as error:
        advice = "start it there with `fedcm federation server`, or open the port in the firewalls between"
        return make_failure("server", f"it does not answer at {address} ({_describe_error(error)}); {advice}")
    return make_success("server", f"it answers at {address}")


def _check_free_ports(kit: Kit) -> CheckResult:
    if taken := find_taken_ports(kit):
        ports = " and ".join(map(str, taken))
        return make_failure("ports", f"another process listens at {ports}; `ss -ltnp` shows which")
    return make_success("ports", " and ".join(map(str, dict.fromkeys((kit.port, kit.admin_port)))) + " are free")


def _check_handshake(kit: Kit, handshake: Handshake) -> CheckResult:
    if handshake.failure:
        wrong = (
            find_invalid_certificate(kit, ask_server=handshake.untrusted)
            or "are both kits of the same federation, and is the server's clock right?"
        )
        return make_failure("mutual TLS", f"{handshake.failure}; {wrong}")
    if not matches_hostname(kit.host, handshake.names):
        names = ", ".join(handshake.names)
        return make_failure(
            "mutual TLS",
            f"the server's certificate must be for {kit.host}, but is for {names}; ask the organiser for another",
        )
    return make_success("mutual TLS", f"both sides accept each other; the server is {kit.host}")


def _check_clock(kit: Kit) -> Iterator[CheckResult]:
    now = f"{read_clock():%Y-%m-%d %H:%M:%S} UTC"
    match _is_clock_synchronised():
        case True:
            yield make_success("clock", f"{now}, and the system synchronises it")
        case False:
            yield make_warning("clock", f"{now}, and nothing synchronises it; see `timedatectl`")
        case _:
            yield make_warning("clock", f"{now}; compare it, because this system does not say if it is synchronised")


def _is_clock_synchronised() -> bool | None:
    """Ask the kernel; None if it does not say."""
    if sys.platform != "linux":
        return None
    state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(512))  # all zero: query, change nothing
    return None if state < 0 else state != _UNSYNCHRONISED


def _check_test_data(kit: Kit) -> Iterator[CheckResult]:
    from fedcm.federation.settings import load_server_settings, load_test_data, load_validation_data

    settings = load_server_settings(kit.path)
    examples, validation = load_test_data(kit.path, settings), load_validation_data(kit.path, settings)
    if validation is not None:
        yield make_success("validation data", f"{validation.size} examples of {tuple(validation.features.shape[1:])}")
    if examples is None:
        yield make_warning(
            "test data", 'none, so runs are not evaluated; name some in server.toml: [test] source = "test.npz"'
        )
    else:
        yield make_success("test data", f"{examples.size} examples of {get_input_shape(examples)}")


def _check_site(kit: Kit, experiment: Path | None) -> Iterator[CheckResult]:
    from fedcm.federation.check.data import check_data, check_experiment
    from fedcm.federation.settings import load_site_settings
    from fedcm.federation.site.state_cipher import read_state_key

    settings = load_site_settings(kit.path)
    yield make_success("site.toml", f"data from {settings.data.source}")
    if settings.storage.key is not None:
        read_state_key(kit.path, settings.storage.key)
        yield make_success("client states", f"encrypted with {settings.storage.key}")
    data = yield from check_data(kit, settings)
    if experiment is not None:
        yield from run_check("experiment", partial(check_experiment, kit, settings, data, experiment))


def _describe_error(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
