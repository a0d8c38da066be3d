"""The signed manifest of a fetched run: every file as the server signed it, and nobody else's signature."""

import json
from pathlib import Path

import pytest
from test_audit import Server

from fedcm.errors import UserError
from fedcm.federation.trust.manifest import MANIFEST_FILE, verify_manifest, write_manifest


@pytest.fixture
def server(tmp_path: Path) -> Server:
    made = Server(tmp_path / "server")
    results = tmp_path / "results"
    results.mkdir()
    (results / "model.safetensors").write_bytes(b"weights")
    (results / "experiment.toml").write_text("rounds = 3")
    head = made.log.append("published", run="r")
    write_manifest(results, made.folder, head, run="r", sites=["a", "b"], rounds=3)
    return made


@pytest.fixture
def results(server: Server, tmp_path: Path) -> Path:
    return tmp_path / "results"


def test_a_good_manifest_names_run_sites_rounds_and_the_audit_log(server: Server, results: Path) -> None:
    signed = verify_manifest(results, server.root.pem)
    assert (signed["run"], signed["sites"], signed["rounds"]) == ("r", ["a", "b"], 3)
    assert signed["audit"] == server.log.read_head()._asdict()
    assert set(signed["files"]) == {"model.safetensors", "experiment.toml"}


def test_a_changed_model_is_found(server: Server, results: Path) -> None:
    (results / "model.safetensors").write_bytes(b"weightS")
    with pytest.raises(UserError, match=r"model.safetensors' is not the file that the server signed"):
        verify_manifest(results, server.root.pem)


def test_a_missing_file_is_found(server: Server, results: Path) -> None:
    (results / "experiment.toml").unlink()
    with pytest.raises(UserError, match=r"must contain 'experiment.toml'"):
        verify_manifest(results, server.root.pem)


@pytest.mark.parametrize("name", ["best.safetensors", "metrics.jsonl", "manifest.json", "federation.log"])
def test_a_file_that_the_server_did_not_sign_is_found(server: Server, results: Path, name: str) -> None:
    (results / name).write_bytes(b"added")
    with pytest.raises(UserError, match=f"{name}' was added: the server did not sign it"):
        verify_manifest(results, server.root.pem)


def test_notes_of_the_reader_may_be_added(server: Server, results: Path) -> None:
    (results / "notes.txt").write_text("good")
    verify_manifest(results, server.root.pem)


def test_a_manifest_with_other_facts_is_found(server: Server, results: Path) -> None:
    table = json.loads((results / MANIFEST_FILE).read_text())
    table["record"] = table["record"].replace('"rounds": 3', '"rounds": 9')
    (results / MANIFEST_FILE).write_text(json.dumps(table))
    with pytest.raises(UserError, match="must be signed by the federation's server"):
        verify_manifest(results, server.root.pem)


def test_a_sites_signature_is_not_the_servers(server: Server, results: Path) -> None:
    server.renew(role="client")
    write_manifest(results, server.folder, server.log.read_head(), run="r")
    with pytest.raises(UserError, match="must be signed by the federation's server"):
        verify_manifest(results, server.root.pem)


def test_a_run_without_a_manifest_is_rejected(server: Server, results: Path) -> None:
    (results / MANIFEST_FILE).unlink()
    with pytest.raises(UserError, match=r"must contain signature.json"):
        verify_manifest(results, server.root.pem)
