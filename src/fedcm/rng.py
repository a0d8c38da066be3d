"""Random numbers as a function of (seed, purpose, round, client).

Any worker can run any client at any time, and there is no generator to save: a resumed run, another order and another
machine draw the same numbers. Seeds are independent replicates. (With `seed + round` as the key, round 1 of seed 0
would draw the same numbers as round 0 of seed 1.)
"""

from enum import IntEnum, unique

import numpy as np


@unique
class Purpose(IntEnum):
    """What random numbers are used for. The values are part of every published result: add new ones, never renumber."""

    SPLIT = 1
    INITIAL_PARAMS = 2
    COHORT = 3
    BATCHES = 4
    MODEL = 5  # dropout and other random layers, inside a client's local steps
    EVALUATION = 6  # random layers that stay active in evaluation
    KNOWN_PROBLEM = 7  # the synthetic problems of fedcm.theory
    GRADIENT_NOISE = 8  # the stochastic gradients of these problems
    RESAMPLING = 9  # bootstrap of measured replicates, for a confidence interval
    DIAGNOSIS = 10  # which clients a diagnosis examines
    TOPOLOGY = 11  # random graphs of decentralised training
    VALIDATION = 12  # which training examples are held back for validation
    AUGMENTATION = 13  # of a batch, in every local step
    WORK = 14  # how many steps or epochs a client does in a round
    SPEED = 15  # how fast a client is; 0 in place of the round: in all rounds, t + 1: in round t
    AVAILABILITY = 16  # when a client can take part
    CLIENT_TEST = 17  # which examples of a client are its own test data
    PERSONALISATION = 18  # the minibatches of a client's own steps before its evaluation
    FRESH_ITEMS = 19  # random transforms inside a torch dataset that is read anew in every pass
    BUCKETS = 30  # which reports share a bucket of a robust mean
    HOSTILE = 31  # which clients attack
    ATTACK = 32  # noise in hostile reports, and which examples of a hostile client have a trigger


def make_generator(seed: int, purpose: Purpose, round: int = 0, client: int = 0) -> np.random.Generator:
    """Return a NumPy generator for one purpose, round and client.

    >>> a = make_generator(1, Purpose.BATCHES, round=3, client=7)
    >>> b = make_generator(1, Purpose.BATCHES, round=3, client=7)
    >>> bool((a.permutation(10) == b.permutation(10)).all())
    True
    """
    return np.random.Generator(np.random.Philox(_make_seed_sequence(seed, purpose, round, client)))


def make_torch_seed(seed: int, purpose: Purpose, round: int = 0, client: int = 0, *within: int) -> int:
    """Return a seed for `torch.manual_seed`, for randomness inside torch modules.

    Args:
        seed: The seed of the experiment.
        purpose: What the random numbers are used for.
        round: The round.
        client: The client.
        *within: The number of the step or pass within a client's round, if each has random numbers of its own.
    """
    return int(_make_seed_sequence(seed, purpose, round, client, *within).generate_state(1, np.uint64)[0] >> 1)


def _make_seed_sequence(seed: int, purpose: Purpose, round: int, client: int, *within: int) -> np.random.SeedSequence:
    return np.random.SeedSequence(seed, spawn_key=(purpose, round, client, *within))
