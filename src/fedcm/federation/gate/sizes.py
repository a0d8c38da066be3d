"""Limit how many bytes the server takes from a site's message, and survive a message that cannot be decoded.

The engine's own limit is 4 GiB per message. Arrays have no limit: the engine downloads them from the sender while it
decodes a message. And when a site's reply cannot be decoded, the engine ends the job for all sites. Here a message that
is too large is refused at its first bytes, and a message that cannot be decoded is dropped. Both name the sender.
"""

import threading
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import Any, Protocol, final

from nvflare.app_common.np import np_downloader
from nvflare.fuel.f3.cellnet import cell as engine_cell
from nvflare.fuel.f3.cellnet.defs import CellChannel, MessageHeaderKey
from nvflare.fuel.f3.cellnet.fqcn import FQCN
from nvflare.fuel.f3.streaming import blob_streamer, byte_receiver
from nvflare.fuel.f3.streaming.download_service import DownloadService
from nvflare.fuel.f3.streaming.stream_const import StreamHeaderKey
from nvflare.fuel.f3.streaming.stream_types import BlobSizeError

from fedcm.federation.trust.foreign_text import clean_text

MAX_BYTES = 2**26  # of a message, if nothing else is known
_MAX_BYTES_WITHOUT_SIZE = 2**20  # of a message that does not say how large it is; ours are then empty
_LARGE_AT_ONCE = 2  # messages of the largest size that one sender may have in progress
_MESSAGES_AT_ONCE = 8  # messages of any size; each occupies two threads until it has arrived
_DECODED_AT_ONCE = 4  # messages of one sender; a site needs two
_MAX_WAITING_CHUNKS = 80  # of a message, before those that come first; the engine needs 65
_MAX_HEADLESS = 16  # messages of one sender of which the first chunk has not come

Refuse = Callable[[str, str], None]  # called with the sender's name and the reason


class _Download(Protocol):
    taken: int  # bytes


@final
class SizeLimit:
    """The largest message that this process takes from another machine."""

    def __init__(self, on_refusal: Refuse, size: int = MAX_BYTES) -> None:
        """Call `on_refusal` for each message that is dropped; `size` is in bytes and can be changed later."""
        self.size = size
        self.on_refusal = on_refusal
        self._in_progress: dict[str, list[int]] = {}  # bytes of each message, by sender
        self._decoding: Counter[str] = Counter()  # messages by sender
        self._too_large = set[str]()  # senders of arrays that were refused while a message of theirs is decoded
        self._lock = threading.Lock()

    def install(self) -> None:
        """Use this limit for all messages from now on."""
        _install_blobs(self)
        _install_downloads(self)
        _install_decoding(self)
        _install_reassembly()

    @property
    def sentence(self) -> str:
        """The reason for which a large message is refused."""
        return f"it is larger than {self.size / 2**20:.0f} MiB, the most that it can need"

    def start(self, sender: str, size: int) -> int:
        """Begin to receive a message and return its largest size.

        Raises:
            BlobSizeError: If it is too large, or the sender has too many large ones in progress.
        """
        most = self.size if size else _MAX_BYTES_WITHOUT_SIZE
        with self._lock:
            others = self._in_progress.get(sender, [])
            is_within = size <= most and sum(others) + (size or most) <= _LARGE_AT_ONCE * self.size
            if not is_within or len(others) >= _MESSAGES_AT_ONCE:
                raise BlobSizeError(f"a message of {size} bytes was refused: {self.sentence}")
            self._in_progress[sender] = [*others, size or most]
        return most

    def finish(self, sender: str, size: int) -> None:
        """Forget a message that has arrived or failed."""
        with self._lock:
            self._in_progress[sender].remove(size or _MAX_BYTES_WITHOUT_SIZE)
            if not self._in_progress[sender]:
                del self._in_progress[sender]

    def refuse(self, headers: Any, reason: str) -> None:
        """Report that a message is dropped."""
        if sender := find_sender(headers):
            self.on_refusal(sender, f"its message was refused: {reason}")

    @contextmanager
    def decoding(self, headers: Any) -> Iterator[None]:
        """Report it if a message cannot be decoded in this block.

        The engine downloads the arrays of a message meanwhile, so a sender could occupy many threads for a long time.
        """
        sender = find_sender(headers)
        try:
            with self._lock:
                self._decoding[sender] += 1
                self._too_large.discard(sender)
                if sender and self._decoding[sender] > _DECODED_AT_ONCE:
                    raise ValueError(f"more than {_DECODED_AT_ONCE} messages at once")
            yield
        except Exception as error:
            reason = f"it cannot be decoded ({type(error).__name__}: {clean_text(error, 200)})"
            self.refuse(headers, self.sentence if sender in self._too_large else reason)
            raise
        finally:
            with self._lock:
                self._decoding[sender] -= 1
                if not self._decoding[sender]:
                    del self._decoding[sender]

    def stop_download(self, origin: str) -> None:
        """End the downloads of arrays from a process that sends too much; the engine would try again."""
        self._too_large.add(find_sender({MessageHeaderKey.ORIGIN: origin}))
        with DownloadService._source_failure_lock:
            downloads = list(DownloadService._active_source_downloads.items())
        for signal in [signal for (source, _), signals in downloads for signal in signals if source == origin]:
            signal.trigger(self.sentence)

    def count_download(self, consumer: _Download, origin: str, items: list[Any]) -> None:
        """Count the bytes of downloaded arrays, and what they unpack to; raise ValueError if they are too large."""
        consumer.taken += sum(max(len(item), _measure_archive(item)) for item in items)
        if consumer.taken > self.size:
            self._too_large.add(find_sender({MessageHeaderKey.ORIGIN: origin}))
            raise ValueError(self.sentence)


def find_sender(headers: Any) -> str:
    """Return the name of the site or admin that sent a message; empty for the server's own processes."""
    origin = headers.get(MessageHeaderKey.ORIGIN) if isinstance(headers, dict) else None
    root = FQCN.split(origin)[0] if isinstance(origin, str) and origin else ""
    return "" if root == FQCN.ROOT_SERVER else root


def _measure_archive(item: Any) -> int:
    """Return how many bytes an archive of arrays says that it unpacks to; reading it gives no more."""
    try:
        with zipfile.ZipFile(BytesIO(item)) as archive:
            return sum(entry.file_size for entry in archive.infolist())
    except zipfile.BadZipFile:
        return 0  # the engine rejects it


def _install_blobs(limit: SizeLimit) -> None:
    plain: Any = blob_streamer.BlobTask
    fail: Any = blob_streamer.BlobHandler._fail

    class LimitedBlobTask(plain):
        def __init__(self, future: Any, stream: Any, max_size: int = 0, preserve_chunks: bool = False) -> None:
            sender = find_sender(future.headers)
            if sender:
                size = max(stream.get_size(), 0)
                max_size = limit.start(sender, size)
                future.add_done_callback(limit.finish, sender, size)
            super().__init__(future, stream, max_size, preserve_chunks)

    def fail_and_name(stream: Any, future: Any, error: Exception) -> None:
        if future.headers.get(StreamHeaderKey.CHANNEL) == CellChannel.RETURN_ONLY:
            limit.stop_download(str(future.headers.get(MessageHeaderKey.ORIGIN)))
        else:
            limit.refuse(future.headers, limit.sentence)
        fail(stream, future, error)

    blob_streamer.BlobTask = LimitedBlobTask
    blob_streamer.BlobHandler._fail = staticmethod(fail_and_name)


def _install_downloads(limit: SizeLimit) -> None:
    download: Any = np_downloader.download_object

    def download_limited(*, from_fqcn: str, consumer: Any, **options: Any) -> Any:
        consume = consumer.consume

        def consume_limited(ref_id: str, state: Any, data: Any) -> Any:
            limit.count_download(consumer, from_fqcn, data)
            return consume(ref_id, state, data)

        consumer.taken = 0
        consumer.consume = consume_limited
        return download(from_fqcn=from_fqcn, consumer=consumer, **options)

    np_downloader.download_object = download_limited


def _install_decoding(limit: SizeLimit) -> None:
    decode: Any = engine_cell.decode_payload

    def decode_or_name(message: Any, *args: Any, **options: Any) -> None:
        if message.get_header(StreamHeaderKey.CHANNEL) == CellChannel.RETURN_ONLY:  # part of a message that is decoded
            decode(message, *args, **options)
            return
        with limit.decoding(message.headers):
            decode(message, *args, **options)

    engine_cell.decode_payload = decode_or_name
    engine_cell._is_server_job_cell = lambda _: False  # otherwise the engine ends the job's process


def _install_reassembly() -> None:
    """Bound what is kept of messages whose chunks do not come in order."""
    receiver: Any = byte_receiver.RxTask
    find = receiver.find_or_create_task.__func__

    def find_limited(kind: Any, message: Any, cell: Any) -> Any:
        origin = message.get_header(MessageHeaderKey.ORIGIN)
        key = origin, message.get_header(StreamHeaderKey.STREAM_ID)
        if message.get_header(StreamHeaderKey.SEQUENCE) and key not in kind.rx_task_map:
            with kind.map_lock:
                tasks = [task for task in kind.rx_task_map.values() if task.origin == origin]
            if sum(task.stream_future is None for task in tasks) >= _MAX_HEADLESS:
                return None
        return find(kind, message, cell)

    byte_receiver.MAX_PEER_DERIVED_OUT_SEQ_CHUNKS = _MAX_WAITING_CHUNKS
    receiver.find_or_create_task = classmethod(find_limited)
