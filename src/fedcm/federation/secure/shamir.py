"""Shamir's secret sharing: any `threshold` shares give the secret, fewer say nothing about it.

The secret is the constant term of a random polynomial of degree threshold − 1 over a prime field; the share of holder
x is the polynomial's value at x. (A. Shamir, "How to share a secret", 1979.)
"""

import secrets
from collections.abc import Mapping, Sequence

SECRET_BYTES = 32
PRIME = 2**256 + 297  # the smallest prime above every secret
SHARE_BYTES = 33


def split_secret(secret: bytes, holders: Sequence[int], threshold: int) -> dict[int, bytes]:
    """Return one share for each holder.

    Args:
        secret: 32 bytes.
        holders: Different positive numbers, one for each holder.
        threshold: How many shares give the secret.
    """
    if len(secret) != SECRET_BYTES or len(set(holders)) < len(holders) or not 1 <= threshold <= len(holders):
        raise ValueError("a secret has 32 bytes, holders differ, and the threshold is at most their number")
    if not all(1 <= holder < 2**32 for holder in holders):
        raise ValueError("the share of holder 0 would be the secret")
    coefficients = [int.from_bytes(secret, "big"), *(secrets.randbelow(PRIME) for _ in range(threshold - 1))]
    return {holder: _evaluate(coefficients, holder).to_bytes(SHARE_BYTES, "big") for holder in holders}


def combine_shares(shares: Mapping[int, bytes], threshold: int) -> bytes:
    """Return the secret, given at least `threshold` shares by holder.

    Raises:
        ValueError: If there are too few shares, or they are not shares of one secret of 32 bytes.
    """
    if len(shares) < threshold:
        raise ValueError(f"{threshold} shares are needed, got {len(shares)}")
    chosen = {holder: int.from_bytes(shares[holder], "big") for holder in sorted(shares)[:threshold]}
    secret = 0
    for holder, share in chosen.items():
        above = below = 1
        for other in chosen:
            if other != holder:
                above, below = above * other % PRIME, below * (other - holder) % PRIME
        secret = (secret + share * above * pow(below, -1, PRIME)) % PRIME
    if secret.bit_length() > 8 * SECRET_BYTES:
        raise ValueError("these are not shares of one secret")
    return secret.to_bytes(SECRET_BYTES, "big")


def _evaluate(coefficients: Sequence[int], point: int) -> int:
    value = 0
    for coefficient in reversed(coefficients):
        value = (value * point + coefficient) % PRIME
    return value
