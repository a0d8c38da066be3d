"""Keys of one round: X25519 (RFC 7748) to agree on secrets, ChaCha20-Poly1305 (RFC 8439) to encrypt shares."""

import secrets
from typing import NamedTuple

from fedcm.errors import UserError
from fedcm.federation.secure.masks import derive_seed
from fedcm.federation.secure.messages import encode

_NONCE_BYTES = 12


class KeyPair(NamedTuple):
    """A key for X25519 and its public key, 32 bytes each."""

    private: bytes
    public: bytes


def make_key_pair() -> KeyPair:
    """Return a fresh key pair."""
    return restore_key_pair(secrets.token_bytes(32))


def restore_key_pair(private: bytes) -> KeyPair:
    """Return the key pair of a private key."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return KeyPair(private, X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw())


def agree(own: KeyPair, other_public: bytes, purpose: bytes) -> bytes:
    """Return the seed that two key pairs have in common, for one purpose.

    Raises:
        UserError: If the other key is not a usable one.
    """
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

    try:
        other = X25519PublicKey.from_public_bytes(other_public)
        shared = X25519PrivateKey.from_private_bytes(own.private).exchange(other)
    except ValueError as error:
        raise UserError(f"a site's key must be a point of large order on Curve25519 ({error})") from None
    return derive_seed(shared, purpose)


def encrypt(seed: bytes, text: bytes, purpose: bytes) -> bytes:
    """Encrypt and authenticate; `purpose` is authenticated too."""
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    nonce = secrets.token_bytes(_NONCE_BYTES)
    return nonce + ChaCha20Poly1305(seed).encrypt(nonce, text, purpose)


def decrypt(seed: bytes, sealed: bytes, purpose: bytes) -> bytes:
    """Decrypt what `encrypt` made.

    Raises:
        UserError: If it was changed, or encrypted with another seed or for another purpose.
    """
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    try:
        return ChaCha20Poly1305(seed).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], purpose)
    except (InvalidTag, ValueError):
        raise UserError("the encrypted shares were changed, or are of another round") from None


def name_share(session: str, sender: str, recipient: str) -> bytes:
    """Return the purpose of the encrypted shares of one site for another."""
    return encode("share", [session, sender, recipient])
