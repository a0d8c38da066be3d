"""Exact samples of the discrete Gaussian N_Z(0, σ²): P(x) ∝ exp(−x² / 2σ²) over the integers.

The algorithms are those of Canonne, Kamath & Steinke, "The Discrete Gaussian for Differential Privacy" (2020), for
whole σ, on arrays of 64-bit integers. Every decision compares integers, so no probability is rounded:

    Bernoulli(a / b)         one uniform word below the largest multiple of b
    Bernoulli(exp(−a / b))   their algorithm 1: alternate Bernoulli(a / b), Bernoulli(a / 2b), … until one fails
    discrete Laplace(σ)      their algorithm 2: a uniform offset below σ, and a geometric number of σ
    discrete Gaussian(σ)     their algorithm 3: accept y with probability exp(−(|y| − σ)² / 2σ²)

There is one exception. A candidate beyond 40σ, which would be accepted with a probability below 10⁻³⁰⁰, is always
rejected, so that the squares fit into 64 bits.
"""

import numpy as np

from fedcm.core.privacy.keystream import KeyStream

GREATEST_SIGMA = 2**26 - 1
BLOCK = 2**15  # samples that share a stream; their arrays fit into a core's cache
_FARTHEST = 40  # candidates beyond this number of σ are rejected
_WORDS = 2**64


def sample_discrete_gaussian(sigma: int, size: int, key: bytes, round: int, field: int) -> np.ndarray:
    """Return `size` independent samples, int64: a pure function of the arguments.

    Args:
        sigma: The parameter σ, from 1 to `GREATEST_SIGMA`; the standard deviation is almost the same.
        size: The number of samples.
        key: The key of the stream cipher, 32 bytes.
        round: The round.
        field: The index of the field that the samples are added to.
    """
    if not 1 <= sigma <= GREATEST_SIGMA:
        raise ValueError(f"sigma must be from 1 to {GREATEST_SIGMA}, got {sigma}")
    samples = np.empty(size, dtype=np.int64)
    for block, start in enumerate(range(0, size, BLOCK)):
        part = samples[start : start + BLOCK]
        part[:] = _sample_block(sigma, len(part), KeyStream(key, round, field, block))
    return samples


def _sample_block(sigma: int, size: int, stream: KeyStream) -> np.ndarray:
    samples = np.empty(0, dtype=np.int64)
    while len(samples) < size:
        candidates = _sample_laplace(sigma, (size - len(samples)) * 4 // 3 + 8, stream)
        excess = (np.abs(candidates) - sigma).astype(np.int64)
        accepted = _decide_exp((excess * excess).astype(np.uint64), 2 * sigma * sigma, stream)
        samples = np.concatenate([samples, candidates[accepted]])
    return samples[:size]


def _sample_laplace(scale: int, size: int, stream: KeyStream) -> np.ndarray:
    """Return samples of P(y) ∝ exp(−|y| / scale), without those beyond 40 scales."""
    samples = np.empty(0, dtype=np.int64)
    while len(samples) < size:
        offsets = _draw_below(scale, (size - len(samples)) * 7 // 4 + 8, stream)
        offsets = offsets[_decide_fraction(offsets, scale, stream)]
        multiples = np.zeros(len(offsets), dtype=np.uint64)
        alive = np.arange(len(offsets))
        for _ in range(_FARTHEST):
            alive = alive[_decide_fraction(np.ones(len(alive), dtype=np.uint64), 1, stream)]
            multiples[alive] += np.uint64(1)
        distances = (offsets + np.uint64(scale) * multiples).astype(np.int64)
        negative = (stream.draw(len(distances)) & np.uint64(1)).astype(bool)
        kept = (multiples < _FARTHEST) & ~(negative & (distances == 0))  # otherwise 0 would count twice
        samples = np.concatenate([samples, np.where(negative, -distances, distances)[kept]])
    return samples[:size]


def _decide_exp(numerators: np.ndarray, denominator: int, stream: KeyStream) -> np.ndarray:
    """Return True with probability exp(−numerator / denominator), for each numerator."""
    whole, rest = np.divmod(numerators, np.uint64(denominator))
    alive = np.flatnonzero(_decide_fraction(rest, denominator, stream))
    passed = np.zeros(len(numerators), dtype=bool)
    tries = 0
    while len(alive):  # exp(−whole) is the probability of as many successes of exp(−1)
        is_done = whole[alive] <= tries
        passed[alive[is_done]] = True
        alive = alive[~is_done]
        alive = alive[_decide_fraction(np.ones(len(alive), dtype=np.uint64), 1, stream)]
        tries += 1
    return passed


def _decide_fraction(numerators: np.ndarray, denominator: int, stream: KeyStream) -> np.ndarray:
    """Return True with probability exp(−numerator / denominator), for fractions of at most 1."""
    results = np.zeros(len(numerators), dtype=bool)
    alive, trial = np.arange(len(numerators)), 1
    while len(alive):
        is_below = _draw_is_below(numerators[alive], denominator * trial, stream)
        results[alive[~is_below]] = trial % 2 == 1
        alive, trial = alive[is_below], trial + 1
    return results


def _draw_is_below(numerators: np.ndarray, denominator: int, stream: KeyStream) -> np.ndarray:
    """Return True with probability numerator / denominator, for each numerator."""
    share = _WORDS // denominator
    words = _draw_words_below(share * denominator, len(numerators), stream)
    if denominator == 1:  # then numerator · share does not fit into a word
        return numerators > 0
    return words < numerators * np.uint64(share)


def _draw_below(bound: int, size: int, stream: KeyStream) -> np.ndarray:
    """Return uniform integers from 0 to bound − 1, uint64."""
    if bound == 1:
        return np.zeros(size, dtype=np.uint64)
    share = _WORDS // bound
    return _draw_words_below(share * bound, size, stream) // np.uint64(share)


def _draw_words_below(limit: int, size: int, stream: KeyStream) -> np.ndarray:
    words = stream.draw(size)
    if limit == _WORDS:
        return words
    is_out = words >= np.uint64(limit)
    if not is_out.any():
        return words
    words = words.copy()
    while (again := np.flatnonzero(words >= np.uint64(limit))).size:
        words[again] = stream.draw(len(again))
    return words
