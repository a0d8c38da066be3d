"""The noise is a discrete Gaussian: against its exact probabilities, its moments, and another implementation."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedcm.core.privacy.discrete_gaussian import BLOCK, GREATEST_SIGMA, sample_discrete_gaussian
from fedcm.core.privacy.keystream import KeyStream, derive_key

KEY = bytes(range(32))


def sample(sigma: int, size: int, round: int = 0, field: int = 0, key: bytes = KEY) -> np.ndarray:
    return sample_discrete_gaussian(sigma, size, key, round, field)


def compute_probabilities(sigma: int, farthest: int) -> np.ndarray:
    """P(x) for |x| ≤ farthest, from the definition."""
    weights = np.array([math.exp(-(x**2) / (2 * sigma**2)) for x in range(-20 * sigma - 20, 20 * sigma + 21)])
    middle = 20 * sigma + 20
    return (weights / math.fsum(weights))[middle - farthest : middle + farthest + 1]


@pytest.mark.parametrize("sigma", [1, 2, 3, 7])
def test_small_noise_has_the_exact_probabilities(sigma: int) -> None:
    size, farthest = 200_000, 3 * sigma
    drawn = sample(sigma, size)
    inner = compute_probabilities(sigma, farthest)
    counts = np.array([np.sum(drawn == x) for x in range(-farthest, farthest + 1)])
    observed, expected = np.append(counts, size - counts.sum()), np.append(inner, 1 - inner.sum()) * size
    assert stats.chisquare(observed, expected).pvalue > 1e-4
    wrong = compute_probabilities(sigma + 1, farthest)  # the test would notice another σ
    assert stats.chisquare(observed, np.append(wrong, 1 - wrong.sum()) * size).pvalue < 1e-12


@pytest.mark.parametrize("sigma", [1000, 3 * 2**20, GREATEST_SIGMA])
def test_large_noise_is_normal_to_the_eye_of_a_statistician(sigma: int) -> None:
    drawn = sample(sigma, 200_000) / sigma
    assert stats.kstest(drawn, "norm").pvalue > 1e-4
    assert abs(drawn.mean()) < 5 / math.sqrt(len(drawn))
    assert abs(drawn.var() - 1) < 5 * math.sqrt(2 / len(drawn))
    assert abs((drawn**4).mean() - 3) < 5 * math.sqrt(96 / len(drawn))
    assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 5 / math.sqrt(len(drawn))


def test_opendp_draws_from_the_same_distribution() -> None:
    opendp = pytest.importorskip("opendp.prelude")
    opendp.enable_features("contrib")
    space = opendp.vector_domain(opendp.atom_domain(T="i64")), opendp.l2_distance(T="f64")
    theirs = np.array(opendp.m.make_gaussian(*space, scale=5.0)([0] * 4000))
    values = range(-12, 13)
    table = np.array([[np.sum(own == x) for x in values] for own in (theirs, sample(5, 100_000))])
    result: Any = stats.chi2_contingency(table[:, table.min(0) > 4])
    assert result.pvalue > 1e-4


def test_noise_is_a_function_of_key_round_and_field() -> None:
    first = sample(1000, 50)
    assert (first == sample(1000, 50)).all()
    for other in (sample(1000, 50, round=1), sample(1000, 50, field=1), sample(1000, 50, key=derive_key(1))):
        assert (first != other).mean() > 0.9
    assert derive_key(1) != derive_key(2)


def test_the_number_of_samples_does_not_change_whole_blocks() -> None:
    assert (sample(1000, 2 * BLOCK + 5)[:BLOCK] == sample(1000, BLOCK)).all()
    blocks = sample(1000, 2 * BLOCK).reshape(2, BLOCK)
    assert abs(np.corrcoef(blocks)[0, 1]) < 5 / math.sqrt(BLOCK)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(1, 9000), min_size=1, max_size=6))
def test_the_stream_is_the_same_in_any_portions(portions: list[int]) -> None:
    whole = KeyStream(KEY, 3, 1, 2).draw(sum(portions)).copy()
    stream = KeyStream(KEY, 3, 1, 2)
    assert (np.concatenate([stream.draw(count).copy() for count in portions]) == whole).all()


def test_the_stream_is_chacha20_of_the_rfc() -> None:
    """RFC 8439, section 2.3.2: the block with counter 1; here the counter starts at 0, so it is the second one."""
    words = KeyStream(bytes(range(32)), 0, int.from_bytes(bytes.fromhex("0000004a"), "little"), 0x09000000).draw(16)
    expected = bytes.fromhex(
        "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
        "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e"
    )
    assert words.astype("<u8").tobytes()[64:128] == expected


@pytest.mark.parametrize("sigma", [0, -1, GREATEST_SIGMA + 1])
def test_a_sigma_that_does_not_fit_is_an_error(sigma: int) -> None:
    with pytest.raises(ValueError, match="sigma must be from 1"):
        sample(sigma, 1)
