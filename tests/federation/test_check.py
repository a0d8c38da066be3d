"""Checks of a kit: each problem gives one line, and does not hide the others."""

import json
import socket
import ssl
import threading
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
from fedcm.federation.check import checks
from fedcm.federation.check.checks import check_kit
from fedcm.federation.check.result import CheckResult
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
    """Mutual TLS at the server's port, with Python's own server."""
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


def check_all(kit: Kit, experiment: Path | None = None) -> dict[str, CheckResult]:
    return {result.about: result for result in check_kit(kit.path, experiment)}


def failures(results: dict[str, CheckResult]) -> set[str]:
    return {about for about, result in results.items() if result.state == "failed"}


def test_a_good_site_passes_all_checks(site: Kit, server: Kit) -> None:
    with listening(server):
        results = check_all(site)
    assert failures(results) == set()
    assert {"kit", "private key", "certificate", "mutual TLS", "clock", "data"} <= set(results)
    assert results["data"].message == "60 examples of 6 float32, 4 classes with 15 to 15 examples"


def test_a_server_that_does_not_answer_fails_only_its_own_check(site: Kit) -> None:
    results = check_all(site)
    assert failures(results) == {"server"}
    assert "start it there with `fedcm federation server`" in results["server"].message
    assert {"certificate", "clock", "data"} <= set(results)


def test_an_admins_kit_is_checked_too(tmp_path: Path, root: Root, server: Kit) -> None:
    admin = make_kit(tmp_path / "admin", "admin", root, server.port)
    with listening(server):
        assert failures(check_all(admin)) == set()


def test_a_key_that_others_can_read_fails(site: Kit) -> None:
    site.key.chmod(0o640)
    result = check_all(site)["private key"]
    assert (result.state, "chmod 600" in result.message, "640" in result.message) == ("failed", True, True)


def test_a_key_of_another_certificate_fails(site: Kit) -> None:
    write_key(site.key)
    assert check_all(site)["key and certificate"].state == "failed"


@pytest.mark.parametrize(
    ("dates", "state", "words"),
    [
        ({"starts": NOW - 9 * DAY, "ends": NOW - DAY}, "failed", "it was valid until"),
        ({"starts": NOW + DAY, "ends": NOW + 9 * DAY}, "failed", "it is not valid yet"),
        ({"ends": NOW + 29 * DAY}, "warning", "days left; renew"),
        ({"ends": NOW + 31 * DAY}, "good", "days left"),
    ],
)
def test_the_validity_of_a_certificate(
    tmp_path: Path, root: Root, dates: dict[str, Any], state: str, words: str
) -> None:
    result = check_all(make_kit(tmp_path / "kit", "site", root, 8002, **dates))["certificate"]
    assert result.state == state
    assert words in result.message


def test_a_certificate_of_another_party_fails(site: Kit, tmp_path: Path, root: Root) -> None:
    paris = make_kit(tmp_path / "paris", "site", root, 8002, "paris")
    site.certificate.write_bytes(paris.certificate.read_bytes())
    results = check_all(site)
    assert "must be of 'berlin'" in results["certificate"].message
    assert {"certificate", "key and certificate"} <= failures(results)


def test_a_root_that_did_not_sign_the_certificate_fails(site: Kit, stranger: Root) -> None:
    site.root.write_bytes(stranger.pem)
    assert check_all(site)["root certificate"].state == "failed"


@pytest.mark.parametrize("up", [listening, engine_listening])
def test_a_certificate_that_the_server_rejects_fails(
    tmp_path: Path, root: Root, stranger: Root, server: Kit, up: Callable[[Kit], Any]
) -> None:
    site = with_data(make_kit(tmp_path / "kit", "site", stranger, server.port))
    site.root.write_bytes(root.pem)  # so that the site accepts the server
    with up(server):
        result = check_all(site)["mutual TLS"]
    assert result.state == "failed"
    assert "does not accept this kit's certificate" in result.message


@pytest.mark.parametrize("error", [ssl.SSLEOFError, ssl.SSLZeroReturnError])
def test_a_server_that_closes_the_connection_rejects_the_certificate(
    site: Kit, server: Kit, monkeypatch: pytest.MonkeyPatch, error: type[ssl.SSLError]
) -> None:
    """Versions of Python raise different errors for it."""

    def close(*args: Any, **kwargs: Any) -> None:
        raise error

    monkeypatch.setattr("fedcm.federation.check.connection.ssl.SSLContext.wrap_socket", close)
    with listening(server):
        result = check_all(site)["mutual TLS"]
    assert result.state == "failed"
    assert "does not accept this kit's certificate" in result.message
    assert "it closed the connection" in result.message


def test_an_expired_certificate_fails(tmp_path: Path, root: Root, server: Kit) -> None:
    made = make_kit(tmp_path / "kit", "site", root, server.port, starts=NOW - 9 * DAY, ends=NOW - DAY)
    site = with_data(made)
    with engine_listening(server):
        assert {"certificate", "mutual TLS"} <= failures(check_all(site))


def test_a_server_of_another_federation_fails(tmp_path: Path, stranger: Root, server: Kit) -> None:
    site = with_data(make_kit(tmp_path / "kit", "site", stranger, server.port))
    with listening(server):
        result = check_all(site)["mutual TLS"]
    assert result.state == "failed"
    assert "the server's certificate is not accepted here" in result.message


def test_a_server_of_another_name_fails(tmp_path: Path, root: Root, site: Kit) -> None:
    other = make_kit(tmp_path / "other", "server", root, site.port, "elsewhere.example.org")
    with listening(other):
        result = check_all(site)["mutual TLS"]
    assert result.state == "failed"
    assert "must be for localhost, but is for elsewhere.example.org" in result.message


def test_a_server_without_tls_fails(site: Kit) -> None:
    with socket.create_server(("127.0.0.1", site.port)) as listener:
        thread = threading.Thread(target=lambda: [listener.accept()[0].sendall(b"220 mail\r\n") for _ in range(2)])
        thread.start()
        result = check_all(site)["mutual TLS"]
        thread.join()
    assert result.state == "failed"


def test_an_unknown_host_name_fails(site: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> list[Any]:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr("fedcm.federation.check.connection.socket.getaddrinfo", unknown)
    results = check_all(site)
    assert failures(results) == {"server's name"}
    assert "localhost is not known here (Name or service not known)" in results["server's name"].message


@pytest.mark.parametrize(
    ("synchronised", "state", "words"),
    [
        (True, "good", "the system synchronises it"),
        (False, "warning", "nothing synchronises it"),
        (None, "warning", "compare it"),
    ],
)
def test_the_clock_is_good_if_the_system_synchronises_it(
    site: Kit, monkeypatch: pytest.MonkeyPatch, synchronised: bool | None, state: str, words: str
) -> None:
    monkeypatch.setattr(checks, "_is_clock_synchronised", lambda: synchronised)
    result = check_all(site)["clock"]
    assert result.state == state
    assert words in result.message


def test_a_site_without_its_files_fails(site: Kit) -> None:
    (site.path / "site.toml").unlink()
    results = check_all(site)
    assert {"kit", "data"} <= failures(results)
    assert "site.toml" in results["kit"].message


def test_data_that_do_not_load_fail(site: Kit) -> None:
    (site.path / "data.npz").unlink()
    assert check_all(site)["data"].state == "failed"
    with_data(site, limits={"min_examples": 100})
    assert "at least 100 examples" in check_all(site)["data"].message


def test_an_experiment_is_checked_on_the_sites_data(site: Kit, tmp_path: Path) -> None:
    def check_changed(**changes: Any) -> dict[str, CheckResult]:
        path = tmp_path / "small.toml"
        path.write_text(tomli_w.dumps(small_experiment("digits", **changes)))
        return check_all(site, path)

    results = check_changed()
    assert results["experiment"].state == "good"
    assert "mlp of 92 parameters" in results["experiment"].message
    assert check_changed(model={"name": "lenet"})["experiment"].state == "failed"
    assert check_changed(participation={"kind": "fixed", "clients": 3})["experiment"].state == "good"
    assert check_changed(federation={"sites": ["paris"]})["sites"].state == "warning"
    evaluated = {"every": 3, "clients": 0.5, "personalise": 1, "metrics": ["top2"]}
    assert check_changed(evaluation=evaluated, stop={"patience": 2})["experiment"].state == "good"
    evaluated["metrics"] = ["top99"]
    assert "top99 needs at least 99 classes" in check_changed(evaluation=evaluated)["experiment"].message
    with_data(site, limits={"experiments": ["other-*"]})
    assert "allows the experiments other-*" in check_changed()["experiment"].message


def test_code_that_the_site_does_not_allow_is_not_imported(
    site: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    path = tmp_path / "evil.toml"
    path.write_text(tomli_w.dumps(small_experiment("digits", model={"name": "evil:model"})))
    assert "only bundled code" in check_all(site, path)["experiment"].message
    assert not (tmp_path / "ran").exists()


def test_the_ports_of_a_server_that_is_not_running(server: Kit) -> None:
    results = check_all(server)
    assert failures(results) == set()
    assert results["ports"].message == f"{server.port} and {server.port + 1} are free"
    assert results["test data"].state == "warning"
    with socket.create_server(("127.0.0.1", server.port)):
        assert failures(check_all(server)) == {"ports"}


def test_missing_test_data_of_the_server_fail(server: Kit) -> None:
    (server.path / "server.toml").write_text('[test]\nsource = "none.npz"\n')
    try:
        assert failures(check_all(server)) == {"test data"}
    finally:
        (server.path / "server.toml").unlink()


def test_free_disk_space(site: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    for free, state in ((10**8, "failed"), (3 * 10**9, "warning"), (10**11, "good")):
        usage = type("Usage", (), {"free": free})
        monkeypatch.setattr("fedcm.federation.check.checks.shutil.disk_usage", lambda _, usage=usage: usage)
        assert check_all(site)["disk"].state == state


def test_the_exit_code_and_json_of_the_command(fedcm: Fedcm, site: Kit, server: Kit, tmp_path: Path) -> None:
    down = fedcm("federation", "check", site.path)
    assert down.code == 1
    assert any(line.startswith("✗ server: ") for line in down.out.splitlines())
    with listening(server):
        up = fedcm("federation", "check", site.path, "--json")
    assert up.code == 0
    printed = json.loads(up.out)
    assert printed["good"] is True
    assert {"about": "certificate", "state": "good"}.items() <= next(
        finding for finding in printed["findings"] if finding["about"] == "certificate"
    ).items()
    assert fedcm("federation", "check", tmp_path / "none").code == 2
    assert fedcm("federation", "check", site.path, "--experiment", tmp_path / "none.toml").code == 2
    assert fedcm("federation", "check", server.path, "--experiment", tmp_path / "none.toml").code == 2


def test_a_folder_that_is_not_a_kit_raises(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="a kit must contain startup/"):
        list(check_kit(tmp_path))
