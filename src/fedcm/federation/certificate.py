"""Read X.509 certificates and compute the fingerprints that two people compare."""

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
    """The fields of a certificate that a federation uses."""

    name: str
    organisation: str
    role: str  # server, client, lead or member; empty in the root certificate
    serial: str
    starts: datetime
    ends: datetime
    fingerprint: str  # of the whole certificate

    @property
    def days_left(self) -> int:
        """Whole days until the certificate expires."""
        return (self.ends - datetime.now(UTC)).days


def read_certificate(path: Path) -> Certificate:
    """Read a certificate from a PEM file.

    Raises:
        UserError: If the file is missing or is not a certificate.
    """
    try:
        return parse_certificate(path.read_bytes())
    except FileNotFoundError:
        raise UserError(f"there is no certificate {str(path)!r}") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{str(path)!r} must be a certificate, but cannot be read as one ({error})") from None


def parse_certificate(pem: bytes) -> Certificate:
    """Parse a certificate in PEM format.

    Raises:
        ValueError: If the bytes are not a certificate.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding
    from cryptography.x509.oid import NameOID

    certificate = x509.load_pem_x509_certificate(pem)
    return Certificate(
        name=_get_attribute(certificate.subject, NameOID.COMMON_NAME),
        organisation=_get_attribute(certificate.subject, NameOID.ORGANIZATION_NAME),
        role=_get_attribute(certificate.subject, NameOID.UNSTRUCTURED_NAME),
        serial=f"{certificate.serial_number:x}",
        starts=certificate.not_valid_before_utc,
        ends=certificate.not_valid_after_utc,
        fingerprint=fingerprint(certificate.public_bytes(Encoding.DER)),
    )


def fingerprint_key(key: Any) -> str:
    """Return the fingerprint of a public key."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return fingerprint(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))


def fingerprint(data: bytes) -> str:
    """Return the SHA-256 fingerprint in the format that openssl prints.

    >>> fingerprint(b"")[:20]
    'SHA256:E3:B0:C4:42:9'
    """
    return "SHA256:" + hashlib.sha256(data).digest().hex(":").upper()


def _get_attribute(subject: "Name", attribute: "ObjectIdentifier") -> str:
    values = subject.get_attributes_for_oid(attribute)
    return str(values[0].value) if values else ""
