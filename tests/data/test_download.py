"""Downloads: complete or resumed, checked by md5, with a one-line error otherwise."""

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fedcm.data import download as download_module
from fedcm.data.download import download_file
from fedcm.errors import UserError

CONTENT = bytes(range(256)) * 4000
MD5 = hashlib.md5(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves CONTENT; the attributes make it fail."""

    content = CONTENT
    ranges = True  # whether it supports the Range header
    cuts: list[int]  # each of the next answers ends after this number of bytes
    ranges_requested: list[str | None]  # the Range header of each request

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/file.bin"


class Answer(BaseHTTPRequestHandler):
    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self) -> None:
        range_header = self.headers.get("Range")
        self.server.ranges_requested.append(range_header)
        if self.path != "/file.bin":
            self.send_error(404)
            return
        start = int(range_header.removeprefix("bytes=").rstrip("-")) if range_header and self.server.ranges else 0
        total = len(self.server.content)
        if start >= total:
            self.send_error(416)
            return
        body = self.server.content[start:]
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{total - 1}/{total}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: self.server.cuts.pop(0)] if self.server.cuts else body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Answer) as serving:
        serving.cuts, serving.ranges_requested = [], []
        thread = threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield serving
        serving.shutdown()
        thread.join()


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "new folder" / "file.bin"


def is_only_file(target: Path) -> bool:
    return [file.name for file in target.parent.iterdir()] == [target.name]


def test_a_file_is_downloaded_completely_and_progress_is_reported(server, target):
    reports = []
    assert (
        download_file(server.url, target, md5=MD5, progress=lambda done, total: reports.append((done, total))) == target
    )
    assert target.read_bytes() == CONTENT
    assert is_only_file(target)
    assert reports[-1] == (len(CONTENT), len(CONTENT))


def test_a_lost_connection_resumes_where_it_stopped(server, target):
    server.cuts = [300_000, 200_000]
    download_file(server.url, target, md5=MD5)
    assert target.read_bytes() == CONTENT
    assert server.ranges_requested == [None, "bytes=300000-", "bytes=500000-"]


def test_the_part_file_of_an_earlier_command_is_used(server, target):
    target.parent.mkdir()
    target.with_name("file.bin.part").write_bytes(CONTENT[:1000])
    download_file(server.url, target, md5=MD5)
    assert server.ranges_requested == ["bytes=1000-"]
    assert target.read_bytes() == CONTENT


def test_a_server_without_range_requests_sends_the_whole_file_again(server, target):
    server.ranges, server.cuts = False, [300_000]
    download_file(server.url, target, md5=MD5)
    assert server.ranges_requested == [None, "bytes=300000-"]
    assert target.read_bytes() == CONTENT


def test_a_complete_part_file_is_used(server, target):
    target.parent.mkdir()
    target.with_name("file.bin.part").write_bytes(CONTENT)
    download_file(server.url, target, md5=MD5)
    assert server.ranges_requested == [f"bytes={len(CONTENT)}-"]
    assert is_only_file(target)


@pytest.mark.parametrize("left", [b"other" * 1000, b"longer than the file" * 100_000])
def test_the_part_file_of_another_download_is_discarded(server, target, left):
    target.parent.mkdir()
    target.with_name("file.bin.part").write_bytes(left)
    download_file(server.url, target, md5=MD5)
    assert server.ranges_requested == [f"bytes={len(left)}-", None]
    assert target.read_bytes() == CONTENT


def test_a_wrong_checksum_is_retried_once_then_rejected_and_no_file_is_left(server, target):
    server.content = b"another file"
    with pytest.raises(UserError, match=f"must have the md5 {MD5}, got another file twice"):
        download_file(server.url, target, md5=MD5)
    assert server.ranges_requested == [None, None]
    assert list(target.parent.iterdir()) == []


def test_a_file_is_checked_by_its_sha256_if_that_is_known(server, target):
    download_file(server.url, target, sha256=hashlib.sha256(CONTENT).hexdigest())
    assert target.read_bytes() == CONTENT
    with pytest.raises(UserError, match=f"must have the sha256 {'0' * 64}, got another file twice"):
        download_file(server.url, target.with_name("other.bin"), sha256="0" * 64)


def test_an_http_error_is_reported_with_its_status(server, target):
    with pytest.raises(UserError, match="the server answers 404 Not Found"):
        download_file(server.url.replace("file", "nothing"), target, md5=MD5)
    assert not target.exists()


def test_repeated_connection_losses_raise_and_the_received_bytes_are_kept(server, target):
    server.cuts = [1000] * 20
    with pytest.raises(UserError, match="lost with 1,019,000 bytes to go; run it again to resume"):
        download_file(server.url, target, md5=MD5)
    assert target.with_name("file.bin.part").read_bytes() == CONTENT[:5000]
    server.cuts = []
    download_file(server.url, target, md5=MD5)
    assert target.read_bytes() == CONTENT


def test_an_unreachable_server_is_reported(server, target):
    url = server.url
    server.shutdown()
    server.server_close()
    with pytest.raises(UserError, match="cannot be downloaded: Connection refused"):
        download_file(url, target, md5=MD5)


def test_a_silent_server_times_out(server, target, monkeypatch):
    monkeypatch.setattr(download_module, "_TIMEOUT", 0.1)
    monkeypatch.setattr(Answer, "do_GET", lambda answer: threading.Event().wait(0.5))
    with pytest.raises(UserError, match="timed out"):
        download_file(server.url, target, md5=MD5)


def test_a_progress_bar_is_shown_only_on_a_terminal(monkeypatch, capsys):
    with download_module.show_progress_bar("file.bin") as update:
        update(1, 2)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with download_module.show_progress_bar("file.bin") as update:
        update(1, 2)
    assert "file.bin" in capsys.readouterr().err
