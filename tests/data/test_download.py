import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fedcm.data import download as downloading
from fedcm.data.download import download
from fedcm.errors import UserError

CONTENT = bytes(range(256)) * 4000
MD5 = hashlib.md5(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves CONTENT, as badly as it is told to."""

    content = CONTENT
    ranges = True  # whether it understands Range
    cuts: list[int]  # each of these answers ends after so many bytes of its body
    asked: list[str | None]  # the Range of each request

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/file.bin"


class Answer(BaseHTTPRequestHandler):
    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.server.asked.append(wanted)
        if self.path != "/file.bin":
            self.send_error(404)
            return
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.server.ranges else 0
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
        serving.cuts, serving.asked = [], []
        thread = threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield serving
        serving.shutdown()
        thread.join()


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "new folder" / "file.bin"


def only_file(target: Path) -> bool:
    return [file.name for file in target.parent.iterdir()] == [target.name]


def test_a_file_arrives_whole_and_its_progress_is_told(server, target):
    told = []
    assert download(server.url, target, md5=MD5, progress=lambda done, total: told.append((done, total))) == target
    assert target.read_bytes() == CONTENT
    assert only_file(target)
    assert told[-1] == (len(CONTENT), len(CONTENT))


def test_a_cut_connection_goes_on_where_it_was(server, target):
    server.cuts = [300_000, 200_000]
    download(server.url, target, md5=MD5)
    assert target.read_bytes() == CONTENT
    assert server.asked == [None, "bytes=300000-", "bytes=500000-"]


def test_what_an_earlier_run_left_is_used(server, target):
    target.parent.mkdir()
    target.with_name("file.bin.part").write_bytes(CONTENT[:1000])
    download(server.url, target, md5=MD5)
    assert server.asked == ["bytes=1000-"]
    assert target.read_bytes() == CONTENT


def test_a_server_without_ranges_sends_the_whole_again(server, target):
    server.ranges, server.cuts = False, [300_000]
    download(server.url, target, md5=MD5)
    assert server.asked == [None, "bytes=300000-"]
    assert target.read_bytes() == CONTENT


def test_a_part_that_is_already_whole_is_taken(server, target):
    target.parent.mkdir()
    target.with_name("file.bin.part").write_bytes(CONTENT)
    download(server.url, target, md5=MD5)
    assert server.asked == [f"bytes={len(CONTENT)}-"]
    assert only_file(target)


@pytest.mark.parametrize("left", [b"other" * 1000, b"longer than the file" * 100_000])
def test_a_part_of_another_file_is_thrown_away_and_the_file_fetched_from_the_start(server, target, left):
    target.parent.mkdir()
    target.with_name("file.bin.part").write_bytes(left)
    download(server.url, target, md5=MD5)
    assert server.asked == [f"bytes={len(left)}-", None]
    assert target.read_bytes() == CONTENT


def test_a_wrong_checksum_is_tried_once_more_then_refused_and_nothing_is_left(server, target):
    server.content = b"another file"
    with pytest.raises(UserError, match=f"must have the md5 {MD5}, got another file twice"):
        download(server.url, target, md5=MD5)
    assert server.asked == [None, None]
    assert list(target.parent.iterdir()) == []


def test_a_missing_page_is_refused_with_the_servers_answer(server, target):
    with pytest.raises(UserError, match="the server answers 404 Not Found"):
        download(server.url.replace("file", "nothing"), target, md5=MD5)
    assert not target.exists()


def test_a_connection_cut_again_and_again_is_refused_and_what_came_is_kept(server, target):
    server.cuts = [1000] * 20
    with pytest.raises(UserError, match="cut with 1,019,000 bytes to go; run it again to go on"):
        download(server.url, target, md5=MD5)
    assert target.with_name("file.bin.part").read_bytes() == CONTENT[:5000]
    server.cuts = []
    download(server.url, target, md5=MD5)
    assert target.read_bytes() == CONTENT


def test_no_server_is_refused(server, target):
    url = server.url
    server.shutdown()
    server.server_close()
    with pytest.raises(UserError, match="cannot be downloaded: Connection refused"):
        download(url, target, md5=MD5)


def test_a_silent_server_is_given_up(server, target, monkeypatch):
    monkeypatch.setattr(downloading, "_TIMEOUT", 0.1)
    monkeypatch.setattr(Answer, "do_GET", lambda answer: threading.Event().wait(0.5))
    with pytest.raises(UserError, match="timed out"):
        download(server.url, target, md5=MD5)


def test_a_bar_shows_on_a_terminal_only(monkeypatch, capsys):
    with downloading.bar("file.bin") as tell:
        tell(1, 2)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with downloading.bar("file.bin") as tell:
        tell(1, 2)
    assert "file.bin" in capsys.readouterr().err
