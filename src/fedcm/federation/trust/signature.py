"""Sign bytes with a party's private key and verify them with its certificate.

RSA keys sign with PSS, elliptic curves with ECDSA, both over SHA-256.
"""

from functools import cache
from pathlib import Path
from typing import Any

from fedcm.errors import UserError


def sign(key: Path, data: bytes) -> str:
    """Return the signature of `data` by a private key in a PEM file, as hexadecimal digits."""
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

    private: Any = _load_key(key, key.stat().st_mtime_ns)
    if isinstance(private, RSAPrivateKey):
        return private.sign(data, *_make_rsa_options()).hex()
    return private.sign(data, _make_ec_option()).hex()


def is_signed(certificate: bytes, data: bytes, signature: str) -> bool:
    """Return whether the key of a PEM certificate made the signature of `data`."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    try:
        public: Any = _load_public_key(certificate)
        options = _make_rsa_options() if isinstance(public, RSAPublicKey) else (_make_ec_option(),)
        public.verify(bytes.fromhex(signature), data, *options)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def is_issued_by(certificate: bytes, root: bytes) -> bool:
    """Return whether a root certificate signed another certificate, both in PEM; dates are not compared."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature

    try:
        issuer = x509.load_pem_x509_certificate(root)
        x509.load_pem_x509_certificate(certificate).verify_directly_issued_by(issuer)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


@cache
def _load_key(key: Path, changed: int) -> Any:
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        return load_pem_private_key(key.read_bytes(), password=None)
    except (TypeError, ValueError) as error:
        raise UserError(f"{str(key)!r} must be a private key, but cannot be read as one ({error})") from None


@cache
def _load_public_key(certificate: bytes) -> Any:
    from cryptography import x509

    return x509.load_pem_x509_certificate(certificate).public_key()


def _make_rsa_options() -> tuple[Any, Any]:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import padding

    scheme = padding.PSS(mgf=padding.MGF1(hashes.SHA256()), salt_length=padding.PSS.DIGEST_LENGTH)
    return scheme, hashes.SHA256()


def _make_ec_option() -> Any:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.ECDSA(hashes.SHA256())
