"""How many answers make a round count."""

from math import ceil


def quorum_of(asked: int, share: float) -> int:
    """
    >>> quorum_of(100, 0.07), quorum_of(3, 0.5), quorum_of(1, 0.1)
    (7, 2, 1)
    """
    return max(ceil(share * asked - 1e-9), 1)
