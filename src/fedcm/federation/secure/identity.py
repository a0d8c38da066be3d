"""Signatures with the keys of the sites' certificates, so that the server cannot speak for a site."""

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, final

from fedcm.errors import UserError
from fedcm.federation.certificate import parse_certificate
from fedcm.federation.kit import Kit

if TYPE_CHECKING:
    from cryptography.x509 import Certificate as X509Certificate

_SITE_ROLE = "client"  # in a site's certificate, as the engine calls it


@final
@dataclass(frozen=True)
class SiteIdentity:
    """A site's name, its certificate with the key, and the root that vouches for all sites; all in PEM format."""

    name: str
    certificate: bytes
    key: bytes
    root: bytes

    @classmethod
    def read(cls, kit: Kit) -> "SiteIdentity":
        """Read the identity from a site's kit.

        Raises:
            UserError: If a file is missing.
        """
        try:
            files = [path.read_bytes() for path in (kit.certificate, kit.key, kit.root)]
        except OSError as error:
            raise UserError(f"a site signs with the key of its certificate, but cannot read it ({error})") from None
        return cls(kit.name, *files)

    def sign(self, message: bytes) -> bytes:
        """Sign a message with the certificate's key."""
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec, padding

        key = self._private_key
        if isinstance(key, ec.EllipticCurvePrivateKey):
            return key.sign(message, ec.ECDSA(hashes.SHA256()))
        return key.sign(message, _make_padding(padding), hashes.SHA256())

    def verify(self, name: str, certificate: bytes, message: bytes, signature: bytes) -> None:
        """Check that a site of this federation signed a message.

        Args:
            name: The site's name.
            certificate: Its certificate in PEM format.
            message: The message.
            signature: The signature.

        Raises:
            UserError: If the certificate is not this site's, is not signed by the root, has expired, or its key did
                not make the signature.
        """
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec, padding

        try:
            key: Any = self._check_certificate(name, certificate).public_key()
            if isinstance(key, ec.EllipticCurvePublicKey):
                key.verify(signature, message, ec.ECDSA(hashes.SHA256()))
            else:
                key.verify(signature, message, _make_padding(padding), hashes.SHA256())
        except (InvalidSignature, ValueError, TypeError, AttributeError) as error:
            reason = str(error) or "the signature is not by its key"
            raise UserError(f"the message must be signed by the site {name!r} of this federation: {reason}") from None

    @cached_property
    def _private_key(self) -> Any:
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        return load_pem_private_key(self.key, password=None)

    def _check_certificate(self, name: str, pem: bytes) -> "X509Certificate":
        """Return the certificate; raise ValueError unless the root signed it for this site."""
        from cryptography import x509
        from cryptography.exceptions import InvalidSignature

        certificate, fields = x509.load_pem_x509_certificate(pem), parse_certificate(pem)
        try:
            certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(self.root))
        except (InvalidSignature, ValueError, TypeError):
            raise ValueError("its certificate is not signed by this federation's root") from None
        if fields.name != name or fields.role != _SITE_ROLE:
            raise ValueError(f"its certificate is of {fields.name!r} with the role {fields.role!r}")
        if not fields.starts <= datetime.now(UTC) <= fields.ends:
            raise ValueError("its certificate is not valid now")
        return certificate


def _make_padding(padding: Any) -> Any:
    from cryptography.hazmat.primitives import hashes

    return padding.PSS(mgf=padding.MGF1(hashes.SHA256()), salt_length=padding.PSS.DIGEST_LENGTH)
