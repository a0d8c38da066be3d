"""The cohort is a pure function of (seed, round)."""

import numpy as np
import pytest

from fedcm.core.participation import Everyone, FixedSize, Independent, Participation


@pytest.mark.parametrize("participation", [Independent(0.1), FixedSize(7), Everyone()])
def test_cohorts_are_a_function_of_the_round(participation: Participation) -> None:
    cohorts = [participation.cohort(100, seed=5, round=r) for r in (3, 3, 4)]
    assert np.array_equal(cohorts[0], cohorts[1])
    if not isinstance(participation, Everyone):
        assert not np.array_equal(cohorts[0], cohorts[2])
    for cohort in cohorts:
        assert np.array_equal(cohort, np.unique(cohort)), "sorted, without repetition"
        assert cohort.min() >= 0
        assert cohort.max() < 100


def test_independent_participation_has_binomial_mean_and_deviation() -> None:
    sizes = np.array([len(Independent(0.02).cohort(500, seed=1, round=r)) for r in range(4000)])
    assert abs(sizes.mean() - 10) < 4 * np.sqrt(9.8 / 4000)
    assert abs(sizes.var() - 9.8) < 1.0


def test_independent_participation_is_uniform() -> None:
    counts = np.zeros(40)
    for r in range(5000):
        counts[Independent(0.1).cohort(40, seed=2, round=r)] += 1
    assert np.abs(counts - 500).max() < 5 * np.sqrt(450)


def test_a_cohort_may_be_empty() -> None:
    assert any(len(Independent(0.05).cohort(10, seed=0, round=r)) == 0 for r in range(20))


def test_seeds_are_independent_replicates() -> None:
    """With draws from seed + round, round 1 of seed 0 would equal round 0 of seed 1."""
    here = [Independent(0.2).cohort(50, seed=0, round=r + 1).tolist() for r in range(20)]
    there = [Independent(0.2).cohort(50, seed=1, round=r).tolist() for r in range(20)]
    assert all(a != b for a, b in zip(here, there, strict=True))


def test_a_fixed_cohort_has_its_size_or_the_population() -> None:
    assert len(FixedSize(10).cohort(1_000_000, seed=0, round=0)) == 10
    assert len(FixedSize(10).cohort(4, seed=0, round=0)) == 4


def philox(seed: int, round: int) -> np.random.Generator:
    """Return the generator of a cohort (purpose 3), which is part of every published result."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(seed, spawn_key=(3, round, 0))))


@pytest.mark.parametrize(("seed", "round"), [(0, 0), (5, 3), (3, 5), (2**40, 999)])
def test_cohorts_are_the_published_draws(seed: int, round: int) -> None:
    draw = philox(seed, round)
    several = np.sort(draw.choice(1000, draw.binomial(1000, 0.02), replace=False, shuffle=False))
    assert Independent(0.02).cohort(1000, seed, round).tolist() == several.tolist()
    fixed = np.sort(philox(seed, round).choice(1000, 7, replace=False, shuffle=False))
    assert FixedSize(7).cohort(1000, seed, round).tolist() == fixed.tolist()


def test_probability_one_is_everyone() -> None:
    for participation in (Independent(1.0), Everyone(), FixedSize(30)):
        assert participation.cohort(30, seed=4, round=2).tolist() == list(range(30))


def test_a_fixed_cohort_of_zero_raises() -> None:
    assert FixedSize(1).cohort(5, 0, 0).shape == (1,)
    for clients in (0, -3):
        with pytest.raises(ValueError, match=f"clients must be at least 1, got {clients}"):
            FixedSize(clients)


@pytest.mark.parametrize("bad", [0.0, -0.1, 1.5])
def test_a_probability_outside_the_unit_interval_raises(bad: float) -> None:
    with pytest.raises(ValueError, match=r"above 0 and at most 1"):
        Independent(bad)
