"""Validation data: a share of the training data that is held back before the split over clients.

Choices, such as when to stop or which setting to keep, are made on validation data, so that the test data stay unseen.
"""

import math
from typing import NamedTuple

import numpy as np

from fedcm.data.partition import Parts, split_by_owner
from fedcm.errors import UserError
from fedcm.rng import Purpose, make_generator


class HeldBack(NamedTuple):
    """The training examples, divided into two sorted arrays of indices."""

    validation: np.ndarray
    remaining: np.ndarray  # for the clients


def hold_back(examples: int, share: float, seed: int, owners: np.ndarray | None = None) -> HeldBack:
    """Draw the validation examples.

    Args:
        examples: The number of training examples.
        share: The share of them that is held back, rounded down.
        seed: The experiment's seed.
        owners: (n,) The client of each example, for a natural split. The share is then held back of every client, and
            every client keeps at least one example.

    Raises:
        UserError: If nothing would be held back.

    >>> drawn = hold_back(20, 0.25, seed=1)
    >>> len(drawn.validation), len(drawn.remaining)
    (5, 15)
    """
    groups: Parts = [np.arange(examples)] if owners is None else split_by_owner(owners)
    drawn = [hold_back_of_client(group, share, seed, client).validation for client, group in enumerate(groups)]
    validation = np.sort(np.concatenate(drawn))
    if not len(validation):
        whose = f"each of the {len(groups)} clients" if owners is not None else "the training data"
        raise UserError(
            f"data.validation must hold back at least one example, and {share} of {whose} (at most "
            f"{max(map(len, groups))} examples) is none; give a larger share"
        )
    return HeldBack(validation, np.setdiff1d(np.arange(examples), validation, assume_unique=True))


def hold_back_of_client(part: np.ndarray, share: float, seed: int, client: int) -> HeldBack:
    """Divide the examples of one client, as indices. The draw is a function of (seed, client) and of their number."""
    drawn = make_generator(seed, Purpose.VALIDATION, client=client).permutation(len(part))
    places = np.sort(drawn[: count_held_back(len(part), share)])
    return HeldBack(part[places], np.delete(part, places))


def count_held_back(examples: int, share: float) -> int:
    """Return how many of a client's examples are a share of them, rounded down; at least one is left over.

    0.29 · 100 is slightly below 29 in floating point, and counts as 29.

    >>> count_held_back(100, 0.29), count_held_back(1, 0.5), count_held_back(3, 0.999)
    (29, 0, 2)
    """
    return min(math.floor(share * examples + 1e-9), examples - 1)
