"""Verify an audit log: every line follows from the line before and is signed by a key of the federation's server."""

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from fedcm.errors import UserError
from fedcm.federation.certificate import parse_certificate
from fedcm.federation.trust.audit import NO_HASH, AuditHead
from fedcm.federation.trust.signature import is_issued_by, is_signed


class AuditReport(NamedTuple):
    """What a check of a log found."""

    head: AuditHead  # the last good line
    problem: str  # the first one; empty if the log is whole
    events: dict[str, int]  # how often each kind of event occurs
    alarms: list[str]
    torn: bool  # whether the last line is incomplete: a process died while it wrote


def verify_audit(file: Path, root: bytes) -> AuditReport:
    """Check a log with the federation's root certificate in PEM.

    Raises:
        UserError: If there is no such file.
    """
    try:
        content = file.read_bytes()
    except OSError as error:
        raise UserError(f"the audit log {str(file)!r} cannot be read ({error.strerror})") from None
    *lines, torn = content.split(b"\n")
    head, certificate = AuditHead(0, NO_HASH), b""
    events, alarms = Counter[str](), list[str]()
    for number, line in enumerate(lines, 1):
        try:
            table = json.loads(line)
            record: dict[str, Any] = json.loads(table["record"])
            if record["event"] == "certificate":
                certificate = _check_certificate(str(record["pem"]).encode(), root)
            _check_line(record, str(table["record"]), str(table["signature"]), certificate, head)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            return AuditReport(head, f"line {number}: {error}", dict(events), alarms, bool(torn))
        head = AuditHead(number, hashlib.sha256(line + b"\n").hexdigest())
        events[str(record["event"])] += 1
        if record["event"] == "alarm":
            place = f"run {record['run']}: " if "run" in record else ""
            alarms.append(f"{record['time']} {place}{record.get('what', '')}")
    return AuditReport(head, "", dict(events), alarms, bool(torn))


def _check_certificate(pem: bytes, root: bytes) -> bytes:
    if not is_issued_by(pem, root):
        raise ValueError("its certificate is not of this federation")
    if (role := parse_certificate(pem).role) != "server":
        raise ValueError(f"its certificate must be the server's, got one of the role {role!r}")
    return pem


def _check_line(record: dict[str, Any], text: str, signature: str, certificate: bytes, head: AuditHead) -> None:
    if not certificate or not is_signed(certificate, text.encode(), signature):
        raise ValueError("its signature is not the server's")
    if record["number"] != head.number + 1:
        raise ValueError(f"its number must be {head.number + 1}, got {record['number']}")
    if record["before"] != head.hash:
        raise ValueError("it does not follow from the line before")
