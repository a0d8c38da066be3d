"""Every random draw is a function of (seed, purpose, round, client), so any worker can do any client at any time.

There is no generator to save: a resumed run, another order and another machine draw the same numbers. Seeds are
independent replicates (`seed + round` would make round 1 of seed 0 the twin of round 0 of seed 1).
"""

from enum import IntEnum, unique

import numpy as np


@unique
class Purpose(IntEnum):
    """What a draw is for. The numbers are part of every published result: never renumber, only add."""

    SPLIT = 1
    INITIAL_PARAMS = 2
    COHORT = 3
    BATCHES = 4
    MODEL = 5  # dropout and the like, inside a client's local steps
    EVALUATION = 6  # the same, where a model takes chances in evaluation too
    KNOWN_PROBLEM = 7  # the made problems of fedcm.theory
    GRADIENT_NOISE = 8  # of their stochastic gradients
    RESAMPLING = 9  # of measured replicates, for a confidence interval
    DIAGNOSIS = 10  # which clients a diagnosis looks at


def make_generator(seed: int, purpose: Purpose, round: int = 0, client: int = 0) -> np.random.Generator:
    """
    >>> a, b = generator(1, Purpose.BATCHES, round=3, client=7), generator(1, Purpose.BATCHES, round=3, client=7)
    >>> bool((a.permutation(10) == b.permutation(10)).all())
    True
    """
    return np.random.Generator(np.random.Philox(_sequence(seed, purpose, round, client)))


def make_torch_seed(seed: int, purpose: Purpose, round: int = 0, client: int = 0) -> int:
    """For torch's own generators, where the chance is inside a torch module."""
    return int(_sequence(seed, purpose, round, client).generate_state(1, np.uint64)[0] >> 1)


def _sequence(seed: int, purpose: Purpose, round: int, client: int) -> np.random.SeedSequence:
    return np.random.SeedSequence(seed, spawn_key=(purpose, round, client))
