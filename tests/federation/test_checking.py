"""A check tells an operator what is wrong before anything starts: one line each, and the others all the same."""

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from made_kits import DAY, NOW, Root, free_port, make_kit, write_key
from scenes import Answer, small_experiment

from fedcm.errors import UserError
from fedcm.federation.check import checking, reaching
from fedcm.federation.check.checking import checked
from fedcm.federation.check.finding import Finding
from fedcm.federation.kit import Kit

Fedcm = Callable[..., Answer]


@pytest.fixture(scope="module")
def root() -> Root:
    return Root()


@pytest.fixture(scope="module")
def stranger() -> Root:
    """Another federation's root, of the same name."""
    return Root()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, root: Root) -> Kit:
    return make_kit(tmp_path_factory.mktemp("parties") / "server", "server", root, free_port())


@contextmanager
def listening(server: Kit) -> Iterator[None]:
    """Mutual TLS at the server's port, by somebody who tells no time."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server.certificate, server.key)
    context.load_verify_locations(server.root)
    context.verify_mode = ssl.CERT_REQUIRED

    def answer() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            try:
                context.wrap_socket(connection, server_side=True).close()
            except OSError:
                connection.close()

    with socket.create_server(("127.0.0.1", server.port)) as listener:
        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


@contextmanager
def engine_listening(server: Kit) -> Iterator[None]:
    """Mutual TLS as the engine speaks it."""
    import grpc

    chain = [(server.key.read_bytes(), server.certificate.read_bytes())]
    credentials = grpc.ssl_server_credentials(chain, server.root.read_bytes(), require_client_auth=True)
    service = grpc.server(futures.ThreadPoolExecutor(1))
    assert service.add_secure_port(f"127.0.0.1:{server.port}", credentials)
    service.start()
    try:
        yield
    finally:
        service.stop(None).wait()


@pytest.fixture
def site(tmp_path: Path, root: Root, server: Kit) -> Kit:
    return with_data(make_kit(tmp_path / "berlin", "site", root, server.port))


def with_data(kit: Kit, **settings: Any) -> Kit:
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(60, 6)).astype(np.float32), np.arange(60) % 4
    np.savez(kit.path / "data.npz", x=x, y=y)
    (kit.path / "site.toml").write_text(tomli_w.dumps({"data": {"source": "data.npz"}, **settings}))
    return kit


def found(kit: Kit, experiment: Path | None = None) -> dict[str, Finding]:
    return {finding.about: finding for finding in checked(kit.path, experiment)}


def failures(findings: dict[str, Finding]) -> set[str]:
    return {about for about, finding in findings.items() if finding.state == "failed"}


def test_a_sound_site_has_nothing_to_mend(site: Kit, server: Kit) -> None:
    with listening(server):
        findings = found(site)
    assert failures(findings) == set()
    assert {"kit", "private key", "certificate", "mutual TLS", "clock", "data"} <= set(findings)
    assert findings["data"].told == "60 examples of 6 float32, 4 classes with 15 to 15 examples"


def test_a_server_that_is_not_up_is_told_with_all_the_rest(site: Kit) -> None:
    findings = found(site)
    assert failures(findings) == {"server"}
    assert "start it there with `fedcm federation server`" in findings["server"].told
    assert {"certificate", "clock", "data"} <= set(findings)


def test_an_admins_kit_is_checked_too(tmp_path: Path, root: Root, server: Kit) -> None:
    admin = make_kit(tmp_path / "admin", "admin", root, server.port)
    with listening(server):
        assert failures(found(admin)) == set()


def test_a_key_that_others_may_read(site: Kit) -> None:
    site.key.chmod(0o640)
    told = found(site)["private key"]
    assert (told.state, "chmod 600" in told.told, "640" in told.told) == ("failed", True, True)


def test_a_key_of_another_certificate(site: Kit) -> None:
    write_key(site.key)
    assert found(site)["key and certificate"].state == "failed"


@pytest.mark.parametrize(
    ("dates", "state", "words"),
    [
        ({"starts": NOW - 9 * DAY, "ends": NOW - DAY}, "failed", "it held until"),
        ({"starts": NOW + DAY, "ends": NOW + 9 * DAY}, "failed", "is this clock right?"),
        ({"ends": NOW + 29 * DAY}, "warning", "days more; the organiser"),
        ({"ends": NOW + 31 * DAY}, "good", "days more"),
    ],
)
def test_when_a_certificate_holds(tmp_path: Path, root: Root, dates: dict[str, Any], state: str, words: str) -> None:
    told = found(make_kit(tmp_path / "kit", "site", root, 8002, **dates))["certificate"]
    assert told.state == state
    assert words in told.told


def test_a_certificate_of_somebody_else(site: Kit, tmp_path: Path, root: Root) -> None:
    paris = make_kit(tmp_path / "paris", "site", root, 8002, "paris")
    site.certificate.write_bytes(paris.certificate.read_bytes())
    told = found(site)
    assert "must be of 'berlin'" in told["certificate"].told
    assert {"certificate", "key and certificate"} <= failures(told)


def test_a_root_that_did_not_sign_the_certificate(site: Kit, stranger: Root) -> None:
    site.root.write_bytes(stranger.pem)
    assert found(site)["root certificate"].state == "failed"


@pytest.mark.parametrize("up", [listening, engine_listening])
def test_a_certificate_that_the_server_turns_away(
    tmp_path: Path, root: Root, stranger: Root, server: Kit, up: Callable[[Kit], Any]
) -> None:
    site = with_data(make_kit(tmp_path / "kit", "site", stranger, server.port))
    site.root.write_bytes(root.pem)  # so that the server is taken for what it is
    with up(server):
        told = found(site)["mutual TLS"]
    assert told.state == "failed"
    assert "does not accept this kit's certificate" in told.told


def test_an_expired_certificate_is_turned_away(tmp_path: Path, root: Root, server: Kit) -> None:
    made = make_kit(tmp_path / "kit", "site", root, server.port, starts=NOW - 9 * DAY, ends=NOW - DAY)
    site = with_data(made)
    with engine_listening(server):
        assert {"certificate", "mutual TLS"} <= failures(found(site))


def test_a_server_of_another_federation(tmp_path: Path, stranger: Root, server: Kit) -> None:
    site = with_data(make_kit(tmp_path / "kit", "site", stranger, server.port))
    with listening(server):
        told = found(site)["mutual TLS"]
    assert told.state == "failed"
    assert "the server's certificate is not accepted here" in told.told


def test_a_server_of_another_name(tmp_path: Path, root: Root, site: Kit) -> None:
    other = make_kit(tmp_path / "other", "server", root, site.port, "elsewhere.example.org")
    with listening(other):
        told = found(site)["mutual TLS"]
    assert told.state == "failed"
    assert "must be localhost, and is elsewhere.example.org" in told.told


def test_somebody_who_speaks_no_tls(site: Kit) -> None:
    with socket.create_server(("127.0.0.1", site.port)) as listener:
        thread = threading.Thread(target=lambda: [listener.accept()[0].sendall(b"220 mail\r\n") for _ in range(2)])
        thread.start()
        told = found(site)["mutual TLS"]
        thread.join()
    assert told.state == "failed"


def test_a_name_that_nobody_knows(site: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> list[Any]:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr("fedcm.federation.check.reaching.socket.getaddrinfo", unknown)
    findings = found(site)
    assert failures(findings) == {"server's name"}
    assert "localhost is not known here (Name or service not known)" in findings["server's name"].told


@pytest.mark.parametrize(
    ("wrong", "state", "words"),
    [(0, "good", "of the server's"), (600, "failed", "600 s ahead of"), (-(10**7), "failed", "behind the server's")],
)
def test_the_clock_is_compared_with_the_engines(
    site: Kit, server: Kit, monkeypatch: pytest.MonkeyPatch, wrong: int, state: str, words: str
) -> None:
    right = time.time
    monkeypatch.setattr(reaching, "time", type("Clock", (), {"time": staticmethod(lambda: right() + wrong)}))
    with engine_listening(server):
        told = found(site)["clock"]
    assert told.state == state
    # whole seconds are told, and the second may change in between
    near = {words} | ({f"{wrong + by} s ahead of" for by in (-1, 1)} if wrong > 0 else set())
    assert any(word in told.told for word in near)


@pytest.mark.parametrize(("kept", "state"), [(True, "good"), (False, "warning"), (None, "warning")])
def test_a_server_that_tells_no_time_leaves_the_systems_own_word(
    site: Kit, server: Kit, monkeypatch: pytest.MonkeyPatch, kept: bool | None, state: str
) -> None:
    monkeypatch.setattr(checking, "_is_kept", lambda: kept)
    with listening(server):
        told = found(site)["clock"]
    assert told.state == state
    assert told.told.startswith("the server's is not known")


def test_a_site_without_its_files(site: Kit) -> None:
    (site.path / "site.toml").unlink()
    findings = found(site)
    assert {"kit", "data"} <= failures(findings)
    assert "site.toml" in findings["kit"].told


def test_data_that_do_not_load(site: Kit) -> None:
    (site.path / "data.npz").unlink()
    assert found(site)["data"].state == "failed"
    with_data(site, limits={"min_examples": 100})
    assert "at least 100 examples" in found(site)["data"].told


def test_a_model_on_the_sites_data(site: Kit, tmp_path: Path) -> None:
    def tried(**changes: Any) -> dict[str, Finding]:
        path = tmp_path / "small.toml"
        path.write_text(tomli_w.dumps(small_experiment("digits", **changes)))
        return found(site, path)

    fits = tried()
    assert fits["experiment"].state == "good"
    assert "mlp of 92 parameters" in fits["experiment"].told
    assert tried(model={"name": "lenet"})["experiment"].state == "failed"
    assert tried(participation={"kind": "fixed", "clients": 3})["experiment"].state == "good"
    assert tried(federation={"sites": ["paris"]})["sites"].state == "warning"
    with_data(site, limits={"experiments": ["other-*"]})
    assert "allows the experiments other-*" in tried()["experiment"].told


def test_code_that_the_site_does_not_allow_is_not_imported(
    site: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    path = tmp_path / "evil.toml"
    path.write_text(tomli_w.dumps(small_experiment("digits", model={"name": "evil:model"})))
    assert "bundled code alone" in found(site, path)["experiment"].told
    assert not (tmp_path / "ran").exists()


def test_a_server_before_it_starts(server: Kit) -> None:
    findings = found(server)
    assert failures(findings) == set()
    assert findings["ports"].told == f"{server.port} and {server.port + 1} are free"
    assert findings["test data"].state == "warning"
    with socket.create_server(("127.0.0.1", server.port)):
        assert failures(found(server)) == {"ports"}


def test_the_servers_test_data(server: Kit) -> None:
    (server.path / "server.toml").write_text('[test]\nsource = "none.npz"\n')
    try:
        assert failures(found(server)) == {"test data"}
    finally:
        (server.path / "server.toml").unlink()


def test_a_disk_that_is_nearly_full(site: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    for free, state in ((10**8, "failed"), (3 * 10**9, "warning"), (10**11, "good")):
        usage = type("Usage", (), {"free": free})
        monkeypatch.setattr("fedcm.federation.check.checking.shutil.disk_usage", lambda _, usage=usage: usage)
        assert found(site)["disk"].state == state


def test_the_command_tells_by_its_exit_code(fedcm: Fedcm, site: Kit, server: Kit, tmp_path: Path) -> None:
    down = fedcm("federation", "check", site.path)
    assert down.code == 1
    assert any(line.startswith("✗ server: ") for line in down.out.splitlines())
    with listening(server):
        up = fedcm("federation", "check", site.path, "--json")
    assert up.code == 0
    told = json.loads(up.out)
    assert told["good"] is True
    assert {"about": "certificate", "state": "good"}.items() <= next(
        finding for finding in told["findings"] if finding["about"] == "certificate"
    ).items()
    assert fedcm("federation", "check", tmp_path / "none").code == 2
    assert fedcm("federation", "check", site.path, "--experiment", tmp_path / "none.toml").code == 2
    assert fedcm("federation", "check", server.path, "--experiment", tmp_path / "none.toml").code == 2


def test_a_folder_that_is_no_kit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="a kit must hold startup/"):
        list(checked(tmp_path))
