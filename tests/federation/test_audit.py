"""The audit log: what is changed, left out, inserted or torn is found, and several processes may write."""

import io
import json
import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest
import typer
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from made_kits import DAY, NOW, Root, write_key

from fedcm.cli.federation.kits.audit import audit
from fedcm.errors import UserError
from fedcm.federation.trust.audit import NO_HASH, AuditLog
from fedcm.federation.trust.audit_check import AuditReport, verify_audit
from fedcm.federation.trust.manifest import write_manifest


class Server:
    """A server's kit with a certificate that can be renewed."""

    def __init__(self, folder: Path) -> None:
        self.root, self.folder = Root(), folder
        (folder / "startup").mkdir(parents=True)
        self.renew()
        self.log = AuditLog(folder)

    def renew(self, role: str = "server", root: Root | None = None) -> None:
        root = root or self.root
        key = ec.generate_private_key(ec.SECP256R1())
        names = [(NameOID.COMMON_NAME, "localhost"), (NameOID.UNSTRUCTURED_NAME, role)]
        subject = x509.Name([x509.NameAttribute(kind, text) for kind, text in names])
        made = x509.CertificateBuilder().subject_name(subject).issuer_name(root.name).public_key(key.public_key())
        made = made.serial_number(x509.random_serial_number()).not_valid_before(NOW - DAY).not_valid_after(NOW + DAY)
        signed = made.sign(root.key, hashes.SHA256())
        (self.folder / "startup/server.crt").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        write_key(self.folder / "startup/server.key", key)

    def verify(self) -> AuditReport:
        return verify_audit(self.log.file, self.root.pem)

    @property
    def lines(self) -> list[bytes]:
        return self.log.file.read_bytes().splitlines(keepends=True)


@pytest.fixture
def server(tmp_path: Path) -> Server:
    made = Server(tmp_path / "server")
    for round in range(4):
        made.log.append("round", run="r", round=round, counted=["a", "b"])
    return made


def test_a_whole_log_is_good(server: Server) -> None:
    head = server.log.append("alarm", what="a copy of berlin")
    report = server.verify()
    assert report.problem == ""
    assert report.events == {"certificate": 1, "round": 4, "alarm": 1}
    assert report.head == head == server.log.read_head()
    assert [alarm.partition(" ")[2] for alarm in report.alarms] == ["a copy of berlin"]
    assert (server.log.file.stat().st_mode & 0o077) == 0


def test_an_empty_log_has_no_head(tmp_path: Path) -> None:
    assert Server(tmp_path / "server").log.read_head() == (0, NO_HASH)


def test_a_changed_line_is_found(server: Server) -> None:
    lines = server.lines
    lines[2] = lines[2].replace(b'\\"b\\"', b'\\"c\\"')
    server.log.file.write_bytes(b"".join(lines))
    assert server.verify().problem == "line 3: its signature is not the server's"
    assert server.verify().head.number == 2


@pytest.mark.parametrize("first", [0, 1, 2, 3])
def test_a_line_that_is_left_out_is_found(server: Server, first: int) -> None:
    lines = server.lines
    del lines[first]
    server.log.file.write_bytes(b"".join(lines))
    assert server.verify().problem.startswith(f"line {first + 1}: ")


def test_two_lines_in_another_order_are_found(server: Server) -> None:
    lines = server.lines
    lines[2], lines[3] = lines[3], lines[2]
    server.log.file.write_bytes(b"".join(lines))
    assert server.verify().problem == "line 3: its number must be 3, got 4"


def test_a_line_of_another_log_of_the_same_server_is_found(server: Server) -> None:
    lines = server.lines
    server.log.file.unlink()
    for name in ("x", "y", "z"):
        server.log.append(name)
    server.log.file.write_bytes(b"".join([*server.lines[:3], lines[3]]))
    assert server.verify().problem == "line 4: it does not follow from the line before"


@pytest.mark.parametrize(("role", "reason"), [("client", "the role 'client'"), ("other", "not of this federation")])
def test_a_certificate_that_is_not_the_servers_is_found(server: Server, role: str, reason: str) -> None:
    server.renew("client", None) if role == "client" else server.renew(root=Root())
    server.log.append("round", run="r", round=9)
    assert server.verify().problem.startswith("line 6: ")
    assert reason in server.verify().problem


def test_a_renewed_server_continues_the_log(server: Server) -> None:
    server.renew()
    server.log.append("round", run="r", round=4)
    assert server.verify().problem == ""
    assert server.verify().events == {"certificate": 2, "round": 5}


@pytest.mark.parametrize("cut", [1, 7, 200])
def test_a_torn_line_is_found_and_the_log_continues(server: Server, cut: int) -> None:
    with server.log.file.open("rb+") as file:
        file.truncate(file.seek(0, os.SEEK_END) - cut)
    assert server.verify().torn
    assert server.verify().problem == ""
    assert server.verify().head.number == 4
    server.log.append("started")
    report = server.verify()
    assert not report.torn
    assert report.problem == ""
    assert report.events == {"certificate": 1, "round": 3, "torn": 1, "started": 1}


class CountedFile(io.FileIO):
    """A file that counts the bytes that are read."""

    bytes_read = 0

    def readinto(self, buffer: Any) -> int:
        count = super().readinto(buffer) or 0
        CountedFile.bytes_read += count
        return count

    def readall(self) -> bytes:
        data = super().readall()
        CountedFile.bytes_read += len(data)
        return data


def test_an_append_does_not_read_the_whole_log(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with server.log.file.open("ab") as file:
        file.write((b"x" * 1023 + b"\n") * 8 * 1024)  # bytes, 8 MiB
    server.log.append("round")
    monkeypatch.setattr(os, "fdopen", lambda descriptor, mode: io.BufferedRandom(CountedFile(descriptor, mode)))
    CountedFile.bytes_read = 0
    server.log.append("round")
    assert 0 < CountedFile.bytes_read < 2 * 2**20


def test_a_certificate_that_another_process_named_is_not_named_again(server: Server) -> None:
    server.renew()
    AuditLog(server.folder).append("round", run="r", round=4)
    server.log.append("round", run="r", round=5)
    assert server.verify().problem == ""
    assert server.verify().events == {"certificate": 2, "round": 6}


@pytest.mark.parametrize("how", ["another file", "the same file"])
def test_a_log_that_begins_again_names_its_certificate_again(server: Server, how: str) -> None:
    if how == "another file":
        server.log.file.unlink()
    else:
        os.truncate(server.log.file, 0)
    for _ in range(8):  # longer than before
        server.log.append("round", run="s")
    assert server.verify().problem == ""
    assert server.verify().events == {"certificate": 1, "round": 8}


def _append_many(folder: Path, name: str) -> None:
    log = AuditLog(folder)
    for number in range(25):
        log.append(name, index=number)


def test_two_processes_write_one_chain(server: Server) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_append_many, args=(server.folder, name)) for name in ("x", "y")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    report = server.verify()
    assert report.problem == ""
    assert (report.events["x"], report.events["y"]) == (25, 25)
    order = [json.loads(json.loads(line)["record"])["event"] for line in server.lines[5:]]
    assert sorted(order) == ["x"] * 25 + ["y"] * 25


def run_command(*args: Path | None) -> int:
    try:
        audit(args[0], args[1] if len(args) > 1 else None)  # pyright: ignore[reportArgumentType]
    except typer.Exit as ended:
        return ended.exit_code
    return 0


@pytest.fixture
def kit(server: Server) -> Path:
    (server.folder / "startup/rootCA.pem").write_bytes(server.root.pem)
    service = {"name": "hospitals", "service": {"target": "localhost:8002"}, "admin_port": 8003}
    (server.folder / "startup/fed_server.json").write_text(json.dumps({"servers": [service]}))
    return server.folder


def test_the_command_verifies_a_kit_and_a_copy_of_its_log(
    server: Server, kit: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.log.append("alarm", what="a copy of berlin")
    assert run_command(kit) == 0
    assert f"last good line: 6, {server.log.read_head().hash}" in capsys.readouterr().out
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(server.log.file.read_bytes().replace(b"berlin", b"paris"))
    assert run_command(copy, kit) == 1
    assert "broken: line 6: its signature is not the server's" in capsys.readouterr().out


def test_the_command_needs_a_root_certificate(server: Server) -> None:
    with pytest.raises(UserError, match="--kit DIR"):
        run_command(server.log.file)


def test_the_command_verifies_a_fetched_run(kit: Path, server: Server, tmp_path: Path) -> None:
    results = tmp_path / "results"
    results.mkdir()
    (results / "model.safetensors").write_bytes(b"weights")
    write_manifest(results, kit, server.log.read_head(), run="r")
    assert run_command(results, kit) == 0
    (results / "model.safetensors").write_bytes(b"other")
    assert run_command(results, kit) == 1
