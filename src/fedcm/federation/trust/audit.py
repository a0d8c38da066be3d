"""The server's audit log, `audit.jsonl`: append-only lines, each with the hash of the line before and a signature.

A line is signed with the server's key. The key's certificate is in the log itself, in a line `certificate` before its
first use, so that the root certificate is all that a reader needs. Several processes of the server may write.

The log shows that nothing before its last line was changed, left out or inserted. It cannot show that lines at its end
were cut off: note the number and hash of the last line elsewhere (every signed model carries them).
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, final

from fedcm.federation.trust.signature import sign

AUDIT_FILE = "audit.jsonl"  # in the server's kit
NO_HASH = "0" * 64  # before the first line
_TAIL = 2**20  # bytes; a line is shorter
_MARK = 64  # bytes


class AuditHead(NamedTuple):
    """The last line of a log."""

    number: int  # of lines
    hash: str  # of the last line


@final
class AuditLog:
    """Appends to the audit log of a server's kit."""

    def __init__(self, kit: Path) -> None:
        """Use the log of a kit; the file is created with the first line."""
        self.file = kit / AUDIT_FILE
        self._certificate = kit / "startup" / "server.crt"
        self._key = kit / "startup" / "server.key"
        self._known = _KnownCertificate()

    def append(self, event: str, **fields: Any) -> AuditHead:
        """Write a line and wait until it is on the disk.

        Args:
            event: What happened, such as "joined", "refused", "round" or "alarm".
            fields: JSON values.
        """
        with self._lock() as file:
            number, before, torn = _read_tail(file)
            pem = self._certificate.read_text(encoding="ascii")
            lines = []
            if torn:  # a process died while it wrote the last line
                lines.append(("torn", {"bytes": len(torn), "sha256": hashlib.sha256(torn).hexdigest()}))
            if self._known.find(file) != pem:
                lines.insert(0, ("certificate", {"pem": pem}))
            file.truncate(file.seek(0, os.SEEK_END) - len(torn))
            file.seek(0, os.SEEK_END)
            for name, values in [*lines, (event, fields)]:
                line = self._make_line(number + 1, before, name, values)
                file.write(line)
                number, before = number + 1, hashlib.sha256(line).hexdigest()
            file.flush()
            os.fsync(file.fileno())
        return AuditHead(number, before)

    def read_head(self) -> AuditHead:
        """Return the number and the hash of the last complete line."""
        if not self.file.exists():
            return AuditHead(0, NO_HASH)
        with self._lock() as file:
            return AuditHead(*_read_tail(file)[:2])

    def read_events(self, **fields: Any) -> list[dict[str, Any]]:
        """Return the lines that have these values, oldest first, without verifying them."""
        if not self.file.exists():
            return []
        with self._lock() as file:
            records = [_try_read_record(line) for line in file]
        return [one for one in records if all(one.get(name) == value for name, value in fields.items())]

    def _make_line(self, number: int, before: str, event: str, fields: dict[str, Any]) -> bytes:
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        record = json.dumps({"number": number, "time": time, "event": event, **fields, "before": before})
        return json.dumps({"record": record, "signature": sign(self._key, record.encode())}).encode() + b"\n"

    @contextmanager
    def _lock(self) -> Iterator[BinaryIO]:
        descriptor = os.open(self.file, os.O_RDWR | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "rb+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file


def _read_tail(file: BinaryIO) -> tuple[int, str, bytes]:
    """Return the number and hash of the last complete line, and the bytes of an incomplete one after it."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - _TAIL, 0))
    tail = file.read()
    complete, end, torn = tail.rpartition(b"\n")
    if not end:
        return 0, NO_HASH, torn
    line = complete.rpartition(b"\n")[2] + b"\n"
    try:
        number = int(_try_read_record(line)["number"])
    except (ValueError, LookupError, TypeError):
        number = 0  # somebody wrote into the log: the chain continues, and `verify_audit` names the line
    return number, hashlib.sha256(line).hexdigest(), torn


@final
class _KnownCertificate:
    """Finds the certificate that a log named last, and reads only the lines that are new since the last time.

    Other processes append too. All is read again if the file is another one, or does not have what was read before.
    """

    def __init__(self) -> None:
        self._file: tuple[int, int] | None = None  # its device and number
        self._mark = b""  # the last bytes that were read: of a signature, so no other line has them
        self._read = 0  # bytes: complete lines
        self._pem = ""

    def find(self, file: BinaryIO) -> str:
        """Return the certificate; empty if there is none. Call this under the log's lock."""
        status = os.fstat(file.fileno())
        if self._file != (status.st_dev, status.st_ino) or not self._has_mark(file):
            self._file, self._mark, self._read, self._pem = (status.st_dev, status.st_ino), b"", 0, ""
        file.seek(self._read)
        for line in file:
            if not line.endswith(b"\n"):  # torn
                break
            self._pem = _read_certificate(line) or self._pem
            self._read += len(line)
            self._mark = line[-_MARK:]
        return self._pem

    def _has_mark(self, file: BinaryIO) -> bool:
        file.seek(self._read - len(self._mark))
        return file.read(len(self._mark)) == self._mark


def _read_certificate(line: bytes) -> str:
    """Return the certificate in a line; empty if there is none."""
    if b'\\"event\\": \\"certificate\\"' not in line:
        return ""
    return str(_try_read_record(line).get("pem", ""))


def _try_read_record(line: bytes) -> dict[str, Any]:
    """Return what a line says; empty if somebody wrote something else into the log."""
    try:
        record = json.loads(json.loads(line)["record"])
    except (ValueError, LookupError, TypeError):
        return {}
    return record if isinstance(record, dict) else {}
