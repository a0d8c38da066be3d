"""What the federation rejects: parties without its certificate, and jobs that bring or name code."""

import json
import shutil
import socket
import ssl
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import tomli_w
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from fleet import CONNECTED, Fleet, Running, experiment_file, fedcm, until

from fedcm.config.experiment import load_experiment_file
from fedcm.errors import UserError
from fedcm.federation.admin.job import write_job
from fedcm.federation.admin.session import open_session
from fedcm.federation.kit import read_kit
from fedcm.federation.provision.deal import deal

pytestmark = pytest.mark.federation

HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # of HTTP/2, which the engine speaks
MODULE = """
import os
from torch import nn
with open(os.environ["IMPORTED"], "a") as file:
    file.write("imported")
def small(input_shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))
"""


INTRUDERS = ("self-signed", "of another federation", "expired", "under the name of another")


class Papers(NamedTuple):
    certificate: Path
    key: Path


@pytest.fixture(scope="module")
def up(shared: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    """The server and one site, both with a module that is not bundled."""
    place = tmp_path_factory.mktemp("installed")
    (place / "own_models.py").write_text(MODULE)
    dealt = deal(load_experiment_file(an_experiment(place)), ["a"], place / "dealt")
    shared.deal(dealt.files[0].parent, ["a"])
    for start in (shared.start_server, lambda **more: shared.start_site("a", **more)):
        name = "server" if start == shared.start_server else "a"
        start(wait=False, PYTHONPATH=str(place), IMPORTED=str(shared.folder / f"imported-{name}"))
    shared.running["server"].wait_for("New client a@")
    return shared


def an_experiment(folder: Path, **changes: Any) -> Path:
    table = {"split": {"kind": "iid", "clients": 1}, "rounds": 1} | changes
    return experiment_file(folder / "trial.toml", **table)


# certificates


def signed(folder: Path, like: Path, issuer: Papers | None, *, days: int = 10) -> Papers:
    """Make a certificate like another one, signed by an issuer or by itself, that expires in `days` days."""
    old = x509.load_pem_x509_certificate(like.read_bytes())
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    by = x509.load_pem_x509_certificate(issuer.certificate.read_bytes()).subject if issuer else old.subject
    signing: Any = load_pem_private_key(issuer.key.read_bytes(), None) if issuer else key
    ends = datetime.now(UTC) + timedelta(days=days)
    made = x509.CertificateBuilder(by, old.subject, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(ends - timedelta(days=30)).not_valid_after(ends)
    for extension in old.extensions:
        identifies_key = isinstance(extension.value, x509.AuthorityKeyIdentifier | x509.SubjectKeyIdentifier)
        if not identifies_key:
            made = made.add_extension(extension.value, extension.critical)
    made = made.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    made = made.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), critical=False)
    folder.mkdir(parents=True, exist_ok=True)
    papers = Papers(folder / "made.crt", folder / "made.key")
    papers.certificate.write_bytes(made.sign(signing, hashes.SHA256()).public_bytes(Encoding.PEM))
    papers.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return papers


def make_papers(fleet: Fleet, kind: str, like: Path, folder: Path) -> Papers | None:
    authority = Papers(fleet.folder / "authority" / "rootCA.pem", fleet.folder / "authority" / "rootCA.key")
    match kind:
        case "good":
            return signed(folder, like, authority)
        case "expired":
            return signed(folder, like, authority, days=-1)
        case "self-signed":
            return signed(folder, like, None)
        case "of another federation":
            return signed(folder, like, signed(folder / "other", authority.certificate, None))
        case _:
            return None


def let_in(port: int, root: Path, papers: Papers | None) -> bool:
    """Return whether the server talks to a client with this certificate."""
    context = ssl.create_default_context(cafile=str(root))
    context.set_alpn_protocols(["h2"])
    if papers is not None:
        context.load_cert_chain(*papers)
    try:
        with (
            socket.create_connection(("localhost", port), timeout=60) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as secure,
        ):
            secure.sendall(HELLO)
            return bool(secure.recv(9))
    except (ssl.SSLError, ConnectionError):
        return False


@pytest.mark.parametrize("who", ["site", "admin"])
@pytest.mark.parametrize("kind", ["good", "none", "self-signed", "of another federation", "expired"])
def test_the_server_talks_only_to_holders_of_a_valid_certificate_of_the_federation(
    up: Fleet, kind: str, who: str, tmp_path: Path
) -> None:
    kit = read_kit(up.site("b") if who == "site" else up.admin)
    assert let_in(kit.port, kit.root, make_papers(up, kind, kit.certificate, tmp_path)) == (kind == "good")


def spoiled_kit(kit: Path, place: Path, papers: Papers) -> Path:
    shutil.copytree(kit, place)
    shutil.copyfile(papers.certificate, place / "startup" / "client.crt")
    shutil.copyfile(papers.key, place / "startup" / "client.key")
    return place


@pytest.fixture(scope="module")
def intruders(up: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Running]]:
    """Sites that pose as b with bad certificates; a good site that started later is connected."""
    trying: dict[str, Running] = {}
    try:
        for kind in INTRUDERS:
            place = tmp_path_factory.mktemp("intruder")
            stolen = Papers(up.site("c") / "startup" / "client.crt", up.site("c") / "startup" / "client.key")
            papers = make_papers(up, kind, up.site("b") / "startup" / "client.crt", place / "papers") or stolen
            kit = spoiled_kit(up.site("b"), place / "kit", papers)
            trying[kind] = Running(["federation", "site", kit], place / "site.out")
            until(lambda kit=kit: (kit / "log.txt").exists(), "its engine's start", up.collect_output)
        up.start_site("d")
        yield trying
    finally:
        for one in trying.values():
            one.kill()


@pytest.mark.parametrize("kind", INTRUDERS)
def test_a_site_with_a_bad_certificate_does_not_connect(up: Fleet, intruders: dict[str, Running], kind: str) -> None:
    assert json.loads(up.call("status", "--json").out)["sites"] == ["a", "d"]
    assert CONNECTED not in intruders[kind].output
    assert "New client b@" not in up.running["server"].output
    assert "Traceback" not in intruders[kind].output


def test_a_site_without_a_certificate_is_not_started(up: Fleet, tmp_path: Path) -> None:
    shutil.copytree(up.site("b"), tmp_path / "kit")
    (tmp_path / "kit" / "startup" / "client.crt").unlink()
    answer = fedcm("federation", "site", tmp_path / "kit")
    assert answer.code == 2
    assert "certificate" in answer.err


# admins


def assert_admin_rejected(up: Fleet, kit: Path, folder: Path) -> None:
    before = {job.name for job in (up.server / "jobs" / "all").glob("*")}
    answer = fedcm("federation", "run", an_experiment(folder), "--kit", kit, "--name", "intruder")
    assert answer.code == 2, answer.err
    assert answer.err.startswith("fedcm: ")
    assert len(answer.err.strip().splitlines()) == 1, answer.err
    assert {job.name for job in (up.server / "jobs" / "all").glob("*")} == before, "no job came in"
    assert not up.at_server("intruder").exists()


@pytest.mark.parametrize("kind", ["self-signed", "of another federation", "expired"])
def test_an_admin_with_a_bad_certificate_is_rejected(up: Fleet, kind: str, tmp_path: Path) -> None:
    papers = make_papers(up, kind, up.admin / "startup" / "client.crt", tmp_path / "papers")
    assert papers is not None
    assert_admin_rejected(up, spoiled_kit(up.admin, tmp_path / "kit", papers), tmp_path)


def test_an_admin_of_another_federation_is_rejected(up: Fleet, tmp_path: Path) -> None:
    """With the complete kit of that federation, including its root certificate."""
    papers = make_papers(up, "of another federation", up.admin / "startup" / "client.crt", tmp_path / "papers")
    assert papers is not None
    kit = spoiled_kit(up.admin, tmp_path / "kit", papers)
    shutil.copyfile(tmp_path / "papers" / "other" / "made.crt", kit / "startup" / "rootCA.pem")
    assert_admin_rejected(up, kit, tmp_path)


@pytest.mark.parametrize("name", ["lead@example.org", "a"])
def test_a_site_cannot_submit_a_run(up: Fleet, name: str, tmp_path: Path) -> None:
    """With its own good certificate, in an admin's name or in its own."""
    startup = up.site("a") / "startup"
    kit = spoiled_kit(up.admin, tmp_path / "kit", Papers(startup / "client.crt", startup / "client.key"))
    file = kit / "startup" / "fed_admin.json"
    table = json.loads(file.read_text())
    table["admin"]["username"] = name
    file.write_text(json.dumps(table))
    assert_admin_rejected(up, kit, tmp_path)


# jobs

Change = Callable[[Path, Path], None]


def shipped_code(job: Path, marker: Path) -> None:
    code = job / "app" / "custom"
    code.mkdir()
    (code / "shipped.py").write_text(f"open({str(marker)!r}, 'w').close()\n")
    _changed(job, "config_fed_client.json", lambda table: _executor(table, "shipped.Executor", {}))
    _changed(job, "config_fed_server.json", lambda table: _workflow(table, "shipped.Controller", {}))


def unused_code(job: Path, marker: Path) -> None:
    code = job / "app" / "custom"
    code.mkdir()
    (code / "sitecustomize.py").write_text(f"open({str(marker)!r}, 'w').close()\n")


def other_class_at_server(job: Path, marker: Path) -> None:
    _changed(job, "config_fed_server.json", lambda table: _workflow(table, "subprocess.Popen", _touch(marker)))


def other_component_at_server(job: Path, marker: Path) -> None:
    component = {"id": "extra", "path": "subprocess.Popen", "args": _touch(marker)}
    _changed(job, "config_fed_server.json", lambda table: table["components"].append(component))


def other_class_at_sites(job: Path, marker: Path) -> None:
    _changed(job, "config_fed_client.json", lambda table: _executor(table, "subprocess.Popen", _touch(marker)))


def other_component_at_sites(job: Path, marker: Path) -> None:
    component = {"id": "extra", "path": "subprocess.Popen", "args": _touch(marker)}
    _changed(job, "config_fed_client.json", lambda table: table["components"].append(component))


def log_settings(job: Path, marker: Path) -> None:
    """The engine would run code that they name."""
    config = {"version": 1, "handlers": {"h": {"()": "subprocess.Popen", **_touch(marker)}}}
    (job / "app" / "config" / "log_config.json").write_text(json.dumps(config))


def foreign_model_at_server(job: Path, marker: Path) -> None:
    """Only the server's part of the job names other code."""
    _experiment_at_server(job, {"model": {"name": "subprocess:Popen", **_touch(marker)}})


def foreign_algorithm_at_server(job: Path, marker: Path) -> None:
    _experiment_at_server(job, {"algorithm": {"name": "own_models:small"}})


CHANGES: list[Change] = [
    shipped_code,
    unused_code,
    other_class_at_server,
    other_component_at_server,
    other_class_at_sites,
    other_component_at_sites,
    log_settings,
    foreign_model_at_server,
    foreign_algorithm_at_server,
]


def _touch(marker: Path) -> dict[str, Any]:
    return {"args": ["touch", str(marker)]}


def _changed(job: Path, name: str, change: Callable[[dict[str, Any]], Any]) -> None:
    file = job / "app" / "config" / name
    table = json.loads(file.read_text())
    change(table)
    file.write_text(json.dumps(table))


def _executor(table: dict[str, Any], path: str, args: dict[str, Any]) -> None:
    table["executors"][0]["executor"] = {"path": path, "args": args}


def _workflow(table: dict[str, Any], path: str, args: dict[str, Any]) -> None:
    table["workflows"][0] |= {"path": path, "args": args}


def _experiment_at_server(job: Path, change: dict[str, Any]) -> None:
    import tomllib

    def changed(table: dict[str, Any]) -> None:
        args = table["workflows"][0]["args"]
        args["experiment"] = tomli_w.dumps(tomllib.loads(args["experiment"]) | change)

    _changed(job, "config_fed_server.json", changed)


@pytest.fixture
def submitted(up: Fleet, tmp_path: Path) -> Iterator[Callable[[Change], str]]:
    """A function that submits a changed job as a good admin and returns its final state or the error."""
    with open_session(read_kit(up.admin)) as session:

        def submit(change: Change) -> str:
            links = load_experiment_file(an_experiment(tmp_path)).federation.model_copy(update={"sites": ["a"]})
            chosen = load_experiment_file(an_experiment(tmp_path)).model_copy(update={"federation": links})
            job = write_job(tmp_path / "job", change.__name__, chosen, resume=False)
            change(job, tmp_path / "marker")
            try:
                number = session.submit_job(job)
            except UserError as error:
                return str(error)
            until(lambda: session.get_state(number).startswith("FINISHED"), "the end of the job", up.collect_output)
            return session.get_state(number)

        yield submit


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_job_that_brings_or_names_code_runs_nothing(
    up: Fleet, submitted: Callable[[Change], str], change: Change, tmp_path: Path
) -> None:
    ended = submitted(change)
    assert not (tmp_path / "marker").exists(), ended
    assert not (up.folder / "imported-server").exists(), ended
    assert not (up.folder / "imported-a").exists(), ended
    assert not (up.at_server(change.__name__) / "summary.json").exists(), ended


def test_a_run_named_like_a_path_writes_nothing_outside_its_folder(
    up: Fleet, submitted: Callable[[Change], str], tmp_path: Path
) -> None:
    def elsewhere(job: Path, marker: Path) -> None:
        _changed(job, "config_fed_server.json", lambda table: table["workflows"][0]["args"].update(run=str(marker)))

    ended = submitted(elsewhere)
    assert not list(tmp_path.glob("marker*")), ended


def test_a_model_that_is_not_bundled_runs_only_if_the_operator_allows_it(up: Fleet, tmp_path: Path) -> None:
    experiment = an_experiment(tmp_path, model={"name": "own_models:small"})
    with (up.server / "server.toml").open("a") as file:
        file.write('\n[limits]\ncode = ["own_models:small"]\n')
    answer = up.run(experiment, "own", "--sites", "a")
    sentence = "this site runs only bundled code, got the model 'own_models:small'"
    assert answer.code == 2, answer.err
    assert sentence in answer.err
    assert sentence in up.call("logs", "own").out
    assert not (up.folder / "imported-a").exists()
    settings = up.site("a") / "site.toml"
    settings.write_text(settings.read_text().replace("code = []", 'code = ["own_models:small"]'))
    done = up.run(experiment, "own", "--sites", "a")
    assert done.code == 0, done.err + up.collect_output()
    assert (up.folder / "imported-a").exists()
