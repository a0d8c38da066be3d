"""What a certificate says."""

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from fedcm.errors import UserError

if TYPE_CHECKING:
    from cryptography.x509 import Name, ObjectIdentifier


@final
@dataclass(frozen=True)
class Certificate:
    name: str
    organisation: str
    role: str  # server, client, lead or member; empty in the root's
    serial: str
    starts: datetime
    ends: datetime
    fingerprint: str  # of the whole certificate

    @property
    def days_left(self) -> int:
        return (self.ends - datetime.now(UTC)).days


def read_certificate(path: Path) -> Certificate:
    try:
        return certificate_from(path.read_bytes())
    except FileNotFoundError:
        raise UserError(f"there is no certificate {str(path)!r}") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{str(path)!r} must be a certificate, and cannot be read as one ({error})") from None


def certificate_from(pem: bytes) -> Certificate:
    """Raises ValueError where the bytes are none."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding
    from cryptography.x509.oid import NameOID

    certificate = x509.load_pem_x509_certificate(pem)
    return Certificate(
        name=_part(certificate.subject, NameOID.COMMON_NAME),
        organisation=_part(certificate.subject, NameOID.ORGANIZATION_NAME),
        role=_part(certificate.subject, NameOID.UNSTRUCTURED_NAME),
        serial=f"{certificate.serial_number:x}",
        starts=certificate.not_valid_before_utc,
        ends=certificate.not_valid_after_utc,
        fingerprint=fingerprint(certificate.public_bytes(Encoding.DER)),
    )


def fingerprint_of_key(key: Any) -> str:
    """Of a public key, for two people to compare."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return fingerprint(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))


def fingerprint(data: bytes) -> str:
    """In the form that openssl prints too.

    >>> fingerprint(b"")[:20]
    'SHA256:E3:B0:C4:42:9'
    """
    return "SHA256:" + hashlib.sha256(data).digest().hex(":").upper()


def _part(subject: "Name", which: "ObjectIdentifier") -> str:
    found = subject.get_attributes_for_oid(which)
    return str(found[0].value) if found else ""
