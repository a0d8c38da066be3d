"""Shamir's secret sharing: any `threshold` shares give the secret, fewer say nothing about it.

The secret is the constant term of a random polynomial of degree threshold − 1 over a prime field; the share of holder
x is the polynomial's value at x. (A. Shamir, "How to share a secret", 1979.)
"""

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from math import comb

SECRET_BYTES = 32
PRIME = 2**256 + 297  # the smallest prime above every secret
SHARE_BYTES = 33
_MOST_TRIES = 200  # of different shares, if some are false


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


def find_secret(shares: Mapping[int, bytes], threshold: int, fits: Callable[[bytes], bool]) -> bytes:
    """Return the secret that fits, even if some of the shares are false.

    All choices of `threshold` shares are tried, or 200 random ones if there are more.

    Args:
        shares: At least `threshold` shares by holder.
        threshold: How many shares give the secret.
        fits: Whether a secret is the right one.

    Raises:
        ValueError: If there are too few shares, or no choice gives a secret that fits.
    """
    if len(shares) < threshold:
        raise ValueError(f"{threshold} shares are needed, got {len(shares)}")
    for chosen in _choose_holders(sorted(shares), threshold):
        try:
            secret = combine_shares({holder: shares[holder] for holder in chosen}, threshold)
        except ValueError:
            continue
        if fits(secret):
            return secret
    raise ValueError("no choice of shares gives the secret")


def _choose_holders(holders: Sequence[int], threshold: int) -> Iterator[Sequence[int]]:
    if comb(len(holders), threshold) <= _MOST_TRIES:
        yield from combinations(holders, threshold)
        return
    yield holders[:threshold]
    random = secrets.SystemRandom()
    for _ in range(_MOST_TRIES - 1):
        yield random.sample(holders, threshold)


def _evaluate(coefficients: Sequence[int], point: int) -> int:
    value = 0
    for coefficient in reversed(coefficients):
        value = (value * point + coefficient) % PRIME
    return value
