"""Test data of the clients themselves: a share of each client's examples, or given examples for each client."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedcm.data.dataset import Examples
from fedcm.data.partition import Parts
from fedcm.data.validation import count_held_back
from fedcm.errors import UserError
from fedcm.rng import Purpose, make_generator
from fedcm.system.user_warnings import FewExamplesWarning, warn_user


class ClientTests(NamedTuple):
    """The test examples of each client, as indices; an empty array if a client has none."""

    parts: Parts
    examples: Examples | None = None  # the examples that the indices refer to; the training examples by default

    def list_clients(self) -> np.ndarray:
        """Return the clients that have test data."""
        return np.flatnonzero([len(part) for part in self.parts])


class DividedParts(NamedTuple):
    """The examples of clients, divided into those that they train on and those that they are tested on."""

    training: Parts
    tests: ClientTests


def divide_part(part: np.ndarray, share: float, seed: int, client: int) -> tuple[np.ndarray, np.ndarray]:
    """Divide the examples of one client, as indices, into those that it trains on and those that it is tested on.

    Which examples are drawn is a function of (seed, client) and of their number, so a site of a federation can draw its
    own.
    """
    count = count_held_back(len(part), share)
    places = make_generator(seed, Purpose.CLIENT_TEST, client=client).permutation(len(part))[:count]
    return np.delete(part, places), part[np.sort(places)]


def hold_out_of_clients(parts: Sequence[np.ndarray], share: float, seed: int) -> DividedParts:
    """Hold out a share of each client's examples, rounded down; each client keeps at least one for training.

    Args:
        parts: For each client, the indices of its examples.
        share: The share that is held out.
        seed: The experiment's seed.

    Raises:
        UserError: If no client has enough examples.
    """
    divided = [divide_part(part, share, seed, client) for client, part in enumerate(parts)]
    training, tests = [list(column) for column in zip(*divided, strict=True)]
    without = sum(len(part) == 0 for part in tests)
    if without == len(parts):
        raise UserError(
            f"evaluation.clients must hold out at least one example of a client, and {share} of at most "
            f"{max(map(len, parts))} examples is none; give a larger share"
        )
    if without:
        warn_user(
            f"{without} of {len(parts)} clients have too few examples for test data of their own (evaluation.clients = "
            f"{share}) and are left out of the results over clients",
            FewExamplesWarning,
        )
    return DividedParts(training, ClientTests(tests))
