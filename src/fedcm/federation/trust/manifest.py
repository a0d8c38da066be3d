"""The signed manifest of a run's results, `signature.json`: which files, from which experiment, sites and rounds.

The server signs it with its key. The root certificate is all that a reader needs to check a fetched model offline.
"""

import hashlib
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedcm.errors import UserError
from fedcm.federation.certificate import parse_certificate
from fedcm.federation.outcome import LOG, OUTCOME
from fedcm.federation.trust.audit import AuditHead
from fedcm.federation.trust.signature import is_issued_by, is_signed, sign
from fedcm.runs.evidence.manifest import EVIDENCE, MANIFEST

MANIFEST_FILE = "signature.json"
_VOUCHED = (*EVIDENCE, MANIFEST, LOG, OUTCOME)  # a reader takes these files for the server's


def write_manifest(results: Path, kit: Path, head: AuditHead, **facts: Any) -> None:
    """Sign all files of a folder of results.

    Args:
        results: The folder.
        kit: The server's kit.
        head: The last line of the audit log.
        facts: JSON values to be signed with the files: the run's name, its sites, its rounds, its ε and δ.
    """
    record = json.dumps(
        {
            **facts,
            "signed": datetime.now(UTC).isoformat(timespec="seconds"),
            "files": _hash_files(results),
            "audit": {"number": head.number, "hash": head.hash},
        }
    )
    signature = sign(kit / "startup" / "server.key", record.encode())
    certificate = (kit / "startup" / "server.crt").read_text(encoding="ascii")
    table = {"record": record, "certificate": certificate, "signature": signature}
    (results / MANIFEST_FILE).write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")


def verify_manifest(results: Path, root: bytes) -> dict[str, Any]:
    """Check that the federation's server signed the files of a folder as they are, and return what it signed.

    Args:
        results: The folder of a fetched run.
        root: The federation's root certificate in PEM.

    Raises:
        UserError: If the manifest is missing, is not the server's, or does not fit the files. Files that are no part
            of a run, such as notes of the reader, may be added.
    """
    file = results / MANIFEST_FILE
    try:
        table = json.loads(file.read_text(encoding="utf-8"))
        text, certificate = str(table["record"]), str(table["certificate"]).encode()
        record: dict[str, Any] = json.loads(text)
        files: dict[str, str] = dict(record["files"])
        is_servers = is_issued_by(certificate, root) and parse_certificate(certificate).role == "server"
        is_good = is_servers and is_signed(certificate, text.encode(), str(table["signature"]))
    except FileNotFoundError:
        raise UserError(
            f"{str(results)!r} must contain {MANIFEST_FILE}, which the server signed, but does not"
        ) from None
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise UserError(f"{str(file)!r} must be a manifest that the server signed, but is damaged ({error})") from None
    if not is_good:
        raise UserError(f"{str(file)!r} must be signed by the federation's server, but is not; do not use this model")
    for name in _VOUCHED:
        if name not in files and os.path.lexists(results / name):
            raise UserError(f"{str(results / name)!r} was added: the server did not sign it; do not use this model")
    for name, found in _hash_files(results).items():
        if name in files and files.pop(name) != found:
            raise UserError(f"{str(results / name)!r} is not the file that the server signed; do not use this model")
    if files:
        raise UserError(f"{str(results)!r} must contain {sorted(files)[0]!r}, which the server signed, but does not")
    return record


def _hash_files(folder: Path) -> dict[str, str]:
    files = sorted(file for file in folder.iterdir() if file.is_file() and file.name != MANIFEST_FILE)
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
