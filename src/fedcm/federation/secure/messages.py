"""The messages of secure aggregation, and what is signed and hashed in them.

Everything is text in JSON: keys, shares and signatures in hexadecimal digits.
"""

import hashlib
import json
from collections.abc import Collection, Mapping
from typing import Any

from fedcm.config.schema import Section, read_section
from fedcm.errors import UserError

_PROTOCOL = "fedcm secure aggregation 1"
LEAST_SITES = 2  # of a sum; a sum of one report is the report


class Advert(Section):
    """The public keys of a site for one round, signed with the key of its certificate."""

    site: str
    context: str  # hash of what the site has trained and how its report is added
    cipher_key: str  # X25519: to encrypt shares for this site
    mask_key: str  # X25519: to agree on pairwise masks with this site
    seed_hash: str  # commits the site to the seed of its own mask
    certificate: str  # PEM
    signature: str

    @property
    def signed(self) -> bytes:
        """The bytes that the signature is of."""
        return encode("advert", self.model_dump(exclude={"signature", "certificate"}))


def read_advert(fields: Any, site: str) -> Advert:
    """Read a site's advert.

    Raises:
        UserError: If it is not an advert of this site.
    """
    advert = read_section(Advert, fields, f"the keys of {site}") if isinstance(fields, Mapping) else None
    if advert is None or advert.site != site:
        raise UserError(f"the keys of {site} must be signed for {site}")
    for key in (advert.cipher_key, advert.mask_key, advert.seed_hash, advert.context):
        if len(from_hex(key)) != 32:
            raise UserError(f"the keys of {site} must have 32 bytes")
    return advert


def encode(kind: str, value: Any) -> bytes:
    """Return the bytes to sign or hash: the same value always gives the same bytes, of this kind of message only."""
    return json.dumps([_PROTOCOL, kind, value], sort_keys=True, separators=(",", ":")).encode()


def compute_digest(kind: str, value: Any) -> str:
    """Return the SHA-256 of `encode`."""
    return hashlib.sha256(encode(kind, value)).hexdigest()


def compute_session(roster: Mapping[str, Advert]) -> str:
    """Return the hash of all keys of a round; two sessions never share masks."""
    return compute_digest("session", {site: advert.model_dump() for site, advert in roster.items()})


def compute_mask_purpose(session: str, sharers: Collection[str]) -> bytes:
    """Return what pairwise masks are for: one session with one set of sites that have dealt their shares."""
    return encode("mask", [session, sorted(sharers)])


def encode_survivors(session: str, survivors: Collection[str]) -> bytes:
    """Return what a site signs before any mask is removed: whose reports are in the sum."""
    return encode("survivors", [session, sorted(survivors)])


def compute_threshold(least: int, sites: int) -> int:
    """Return how many sites of a round must take part in every step, and so in the sum.

    More than half of the sites that advertised keys: two groups that are told different things cannot both reach it.

    >>> compute_threshold(2, 3), compute_threshold(7, 10), compute_threshold(2, 10)
    (2, 7, 6)
    """
    return max(least, sites // 2 + 1, LEAST_SITES)


def from_hex(text: Any) -> bytes:
    """Read hexadecimal digits.

    Raises:
        UserError: If the text is something else.
    """
    try:
        return bytes.fromhex(text)
    except (ValueError, TypeError):
        raise UserError(f"a message must have hexadecimal digits, got {str(text)[:40]!r}") from None
