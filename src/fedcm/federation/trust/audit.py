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
            if _find_last_certificate(file) != pem:
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
        number = int(json.loads(json.loads(line)["record"])["number"])
    except (ValueError, LookupError, TypeError):
        number = 0  # somebody wrote into the log: the chain goes on, and `verify_audit` names the line
    return number, hashlib.sha256(line).hexdigest(), torn


def _find_last_certificate(file: BinaryIO) -> str:
    """Return the certificate that the log named last; empty if there is none."""
    file.seek(0)
    pem = ""
    for line in file:
        if b'\\"event\\": \\"certificate\\"' in line:
            try:
                pem = str(json.loads(json.loads(line)["record"])["pem"])
            except (ValueError, LookupError, TypeError):
                continue
    return pem
