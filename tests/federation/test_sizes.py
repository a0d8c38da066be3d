"""The server takes no more bytes of a message than it can need, and drops what it cannot decode."""

from collections.abc import Iterator
from contextlib import ExitStack
from io import BytesIO
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from made_kits import free_port
from nvflare.app_common.np import np_downloader
from nvflare.app_common.np.np_downloader import ArrayDownloadable
from nvflare.fuel.f3.cellnet import cell as engine_cell
from nvflare.fuel.f3.cellnet.cell import Cell
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.streaming import blob_streamer, byte_receiver
from nvflare.fuel.f3.streaming.stream_const import StreamHeaderKey
from nvflare.fuel.f3.streaming.stream_types import BlobSizeError

from fedcm.federation.gate.sizes import SizeLimit, find_sender

MIB = 2**20


@pytest.fixture
def refused() -> list[tuple[str, str]]:
    return []


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch, refused: list[tuple[str, str]]) -> SizeLimit:
    """An installed limit of 4 MiB; the engine is as before at the end."""
    monkeypatch.setattr(blob_streamer, "BlobTask", blob_streamer.BlobTask)
    monkeypatch.setattr(blob_streamer.BlobHandler, "_fail", staticmethod(blob_streamer.BlobHandler._fail))
    monkeypatch.setattr(np_downloader, "download_object", np_downloader.download_object)
    monkeypatch.setattr(engine_cell, "decode_payload", engine_cell.decode_payload)
    monkeypatch.setattr(engine_cell, "_is_server_job_cell", engine_cell._is_server_job_cell)
    monkeypatch.setattr(byte_receiver, "MAX_PEER_DERIVED_OUT_SEQ_CHUNKS", 1024)
    find = byte_receiver.RxTask.find_or_create_task.__func__
    monkeypatch.setattr(byte_receiver.RxTask, "find_or_create_task", classmethod(find))
    made = SizeLimit(lambda site, reason: refused.append((site, reason)), 4 * MIB)
    made.install()
    return made


@pytest.fixture(scope="module")
def cells() -> Iterator[tuple[Cell, Cell]]:
    """The cells of a server and of the site c; the engine allows one of each name in a process."""
    url = f"tcp://localhost:{free_port()}"
    server, site = (Cell(fqcn=name, root_url=url, secure=False, credentials={}) for name in ("server", "c"))
    server.start()
    site.start()
    yield server, site
    site.stop()
    server.stop()


def send(site: Cell, topic: str, payload: bytes) -> Any:
    return site.send_blob("channel", topic, "server", Message({}, payload))


def test_a_message_within_the_limit_arrives(
    limit: SizeLimit, cells: tuple[Cell, Cell], refused: list[tuple[str, str]]
) -> None:
    server, site = cells
    taken: SimpleQueue[int] = SimpleQueue()
    server.register_blob_cb("channel", "small", lambda future: taken.put(len(future.result())))
    for _ in range(5):  # a finished one does not count any more
        assert send(site, "small", bytes(3 * MIB)).result(timeout=60) == 3 * MIB
        assert taken.get(timeout=60) == 3 * MIB
    assert refused == []


def test_a_message_beyond_the_limit_is_refused_by_name_at_its_first_bytes(
    limit: SizeLimit, cells: tuple[Cell, Cell], refused: list[tuple[str, str]]
) -> None:
    server, site = cells
    server.register_blob_cb("channel", "large", lambda future: future.result())
    sent = send(site, "large", bytes(256 * MIB))
    with pytest.raises(BlobSizeError, match="larger than 4 MiB"):
        sent.result(timeout=60)
    assert refused[0][0] == "c"
    assert refused[0][1] == "its message was refused: it is larger than 4 MiB, the most that it can need"
    assert sent.get_progress() < 256 * MIB


def test_many_large_messages_at_once_count_together(limit: SizeLimit) -> None:
    assert limit.start("c", 4 * MIB) == 4 * MIB
    limit.start("c", 4 * MIB)
    limit.start("b", 4 * MIB)
    with pytest.raises(BlobSizeError):
        limit.start("c", MIB)
    limit.finish("c", 4 * MIB)
    limit.start("c", MIB)


def test_many_small_messages_at_once_count_too(limit: SizeLimit) -> None:
    for _ in range(8):
        limit.start("c", 1)
    with pytest.raises(BlobSizeError):
        limit.start("c", 1)
    limit.finish("c", 1)
    limit.start("c", 1)


def test_a_message_that_does_not_say_its_size_gets_one_mebibyte(limit: SizeLimit) -> None:
    assert limit.start("c", 0) == MIB


def test_the_servers_own_processes_have_no_limit() -> None:
    assert find_sender({MessageHeaderKey.ORIGIN: "server.job"}) == ""
    assert find_sender({MessageHeaderKey.ORIGIN: "c.job"}) == "c"
    assert find_sender(None) == ""


def download(monkeypatch: pytest.MonkeyPatch, *items: bytes) -> tuple[str | None, Any]:
    """Download these items from the site c; each is a reply of its own."""
    limit = SizeLimit(lambda site, reason: None, 4 * MIB)

    def receive(*, consumer: Any, **_: Any) -> None:
        try:
            for item in items:
                consumer.consume("ref", {}, [item])
        except ValueError as error:
            consumer.download_failed("ref", str(error))

    monkeypatch.setattr(np_downloader, "download_object", receive)
    limit.install()
    cell: Any = None
    return np_downloader.download_arrays(from_fqcn="c.job", ref_id="ref", per_request_timeout=1, cell=cell)


def make_item(**arrays: np.ndarray) -> bytes:
    return ArrayDownloadable(arrays, MIB).produce_item(0)


def test_downloaded_arrays_count_together(limit: SizeLimit, monkeypatch: pytest.MonkeyPatch) -> None:
    item = make_item(vector=np.ones(3 * MIB, np.uint8))
    error, arrays = download(monkeypatch, item)
    assert error is None
    assert arrays["vector"].sum() == 3 * MIB
    error, arrays = download(monkeypatch, item, item)
    assert "larger than 4 MiB" in (error or "")
    assert arrays is None


def test_an_archive_that_unpacks_to_more_than_the_limit_is_not_unpacked(
    limit: SizeLimit, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = BytesIO()
    np.savez_compressed(stream, vector=np.zeros(64 * MIB, np.uint8))
    assert len(stream.getvalue()) < MIB
    error, _ = download(monkeypatch, stream.getvalue())
    assert "larger than 4 MiB" in (error or "")


def test_one_sender_does_not_occupy_all_threads_that_decode(limit: SizeLimit, refused: list[tuple[str, str]]) -> None:
    headers = {MessageHeaderKey.ORIGIN: "c.job"}
    with ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(limit.decoding(headers))
        with limit.decoding({MessageHeaderKey.ORIGIN: "b.job"}):
            pass
        with pytest.raises(ValueError, match="more than 4 messages at once"), limit.decoding(headers):
            pass
    assert [site for site, _ in refused] == ["c"]
    with limit.decoding(headers):
        pass


def test_a_message_that_cannot_be_decoded_is_dropped_and_names_its_sender(
    limit: SizeLimit, refused: list[tuple[str, str]]
) -> None:
    message = Message({MessageHeaderKey.ORIGIN: "c.job", StreamHeaderKey.PAYLOAD_ENCODING: "fobs"}, b"junk")
    with pytest.raises(Exception):  # noqa: B017, PT011 - of the decoder
        engine_cell.decode_payload(message, StreamHeaderKey.PAYLOAD_ENCODING, fobs_ctx={})
    assert [site for site, _ in refused] == ["c"]
    assert "its message was refused: it cannot be decoded" in refused[0][1]
    job: Any = SimpleNamespace(fqcn="server.job")
    assert not engine_cell._is_server_job_cell(job), "the engine would end the job's process"


def test_chunks_without_a_beginning_are_kept_for_a_few_messages_only(limit: SizeLimit) -> None:
    cell: Any = SimpleNamespace(my_info=SimpleNamespace(fqcn="server"))
    made = []
    for number in range(40):
        headers = {MessageHeaderKey.ORIGIN: "z", StreamHeaderKey.STREAM_ID: number, StreamHeaderKey.SEQUENCE: 1}
        made.append(byte_receiver.RxTask.find_or_create_task(Message(headers, b""), cell))
    kept = [task for task in made if task is not None]
    for task in kept:
        byte_receiver.RxTask.rx_task_map.pop(("z", task.sid))
    assert len(kept) == 16
