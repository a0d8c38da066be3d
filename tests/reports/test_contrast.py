"""Differences have the intervals of Student or Welch; a single seed has none."""

import math
import statistics

import pytest
from scipy import stats

from fedcm.reports.claims.contrast import compare

ONE = {1: 80.0, 2: 81.5, 3: 79.0, 4: 82.0}
OTHER = {1: 78.0, 2: 80.5, 3: 76.0, 4: 80.1}


@pytest.mark.parametrize("comparisons", [1, 4])
def test_equal_seeds_give_students_paired_interval(comparisons: int) -> None:
    contrast = compare([(1, ONE), (-1, dict(reversed(OTHER.items())))])
    known = stats.ttest_rel(list(ONE.values()), list(OTHER.values())).confidence_interval(1 - 0.05 / comparisons)
    assert contrast.interval(comparisons) == pytest.approx((known.low, known.high))
    assert contrast.seeds == "paired over 4 seeds"


@pytest.mark.parametrize("comparisons", [1, 4])
def test_different_seeds_give_welchs_interval(comparisons: int) -> None:
    other = {seed + 1: value for seed, value in list(OTHER.items())[:3]}
    contrast = compare([(1, ONE), (-1, other)])
    known = stats.ttest_ind(list(ONE.values()), list(other.values()), equal_var=False)
    interval = known.confidence_interval(1 - 0.05 / comparisons)
    assert contrast.interval(comparisons) == pytest.approx((interval.low, interval.high))
    assert contrast.seeds == "4 and 3 seeds"


def test_four_sides_with_equal_seeds_give_one_difference_per_seed() -> None:
    third, fourth = {s: v - 3 for s, v in OTHER.items()}, {s: v * 1.01 for s, v in ONE.items()}
    contrast = compare([(1, ONE), (-1, OTHER), (-1, third), (1, fourth)])
    by_seed = [ONE[s] - OTHER[s] - third[s] + fourth[s] for s in ONE]
    known = stats.ttest_1samp(by_seed, 0.0).confidence_interval(0.95)
    assert contrast.difference == pytest.approx(statistics.fmean(by_seed))
    assert contrast.interval() == pytest.approx((known.low, known.high))


def test_four_sides_with_different_seeds_add_their_variances() -> None:
    """With equal counts and variances, Welch's degrees of degrees_of_freedom are four times those of one side."""
    sides = [{10 * k + seed: value for seed, value in ((1, -1.0), (2, 0.0), (3, 1.0))} for k in range(4)]
    contrast = compare([(1, sides[0]), (-1, sides[1]), (-1, sides[2]), (1, sides[3])])
    assert contrast.error == pytest.approx(math.sqrt(4 * 1.0 / 3))
    assert contrast.degrees_of_freedom == pytest.approx(4 * 2)


@pytest.mark.parametrize(
    ("one", "other", "seeds"),
    [({1: 80.0}, {1: 70.0}, "one seed"), ({1: 80.0, 2: 81.0}, {1: 70.0}, "one side has one seed")],
)
def test_one_seed_has_no_interval(one: dict[int, float], other: dict[int, float], seeds: str) -> None:
    contrast = compare([(1, one), (-1, other)])
    assert contrast.interval() is None
    assert contrast.seeds == seeds
    assert contrast.is_above
    assert not contrast.is_significantly_above()
    assert not compare([(1, other), (-1, one)]).is_significantly_below()


@pytest.mark.parametrize(
    ("difference", "above"), [(0.004, False), (0.006, True), (-0.004, False), (-0.006, False), (0.0, False)]
)
def test_difference_that_rounds_to_zero_is_a_tie(difference: float, above: bool) -> None:
    lower = {1: 80.0, 2: 70.0, 3: 75.0}
    contrast = compare([(1, {seed: value + difference for seed, value in lower.items()}), (-1, lower)])
    assert (contrast.is_above, contrast.is_significantly_above()) == (above, above)
    assert contrast.is_significantly_below() == (difference == -0.006)


@pytest.mark.parametrize("seeds", [2, 3])
@pytest.mark.parametrize("paired", [True, False])
def test_two_seeds_are_never_sure(seeds: int, paired: bool) -> None:
    """Accuracies over few test examples are often equal by chance."""
    better = dict.fromkeys(range(seeds), 81.0)
    worse = dict.fromkeys(range(seeds) if paired else range(10, 10 + seeds), 80.0)
    contrast = compare([(1, better), (-1, worse)])
    assert contrast.interval() == (1.0, 1.0)
    assert contrast.excludes_zero()
    assert contrast.is_significantly_above() == (seeds == 3)
    assert compare([(1, worse), (-1, better)]).is_significantly_below() == (seeds == 3)


def test_interval_widens_with_the_number_of_comparisons() -> None:
    """Differences of 3, 5 and 6 have t = 5.3: more than 4.3 for one comparison, less than 6.2 for two."""
    higher, lower = {1: 73.0, 2: 75.0, 3: 76.0}, {1: 70.0, 2: 70.0, 3: 70.0}
    above, below = compare([(1, higher), (-1, lower)]), compare([(1, lower), (-1, higher)])
    assert (above.is_significantly_above(), above.is_significantly_above(2), above.is_significantly_below()) == (
        True,
        False,
        False,
    )
    assert (below.is_significantly_below(), below.is_significantly_below(2), below.is_significantly_above()) == (
        True,
        False,
        False,
    )


def test_tie_of_losses_is_relative() -> None:
    assert compare([(1, {1: -1e-6}), (-1, {1: -2e-6})], relative=True).is_above
    assert not compare([(1, {1: -1e-6}), (-1, {1: -2e-6})]).is_above
    assert not compare([(1, {1: -10000.2}), (-1, {1: -10000.5})], relative=True).is_above


def test_interval_of_equal_values_is_a_point() -> None:
    assert compare([(1, {1: 2.0, 2: 2.0}), (-1, {3: 1.0, 4: 1.0})]).interval() == (1.0, 1.0)


def test_divergence_of_all_seeds_is_surely_worse() -> None:
    diverged: dict[int, float] = {1: -math.inf, 2: -math.inf}
    alive = {1: 50.0, 2: 51.0}
    assert compare([(1, alive), (-1, diverged)]).is_significantly_above(100)
    assert compare([(1, diverged), (-1, alive)]).is_significantly_below(100)


@pytest.mark.parametrize("diverged", [{1: -math.inf}, {1: -math.inf, 2: 60.0}, {1: -math.inf, 3: -math.inf, 4: 1.0}])
def test_divergence_of_some_seeds_is_not_surely_worse(diverged: dict[int, float]) -> None:
    contrast = compare([(1, {1: 50.0, 2: 51.0}), (-1, diverged)])
    assert contrast.is_above
    assert not contrast.is_significantly_above()


def test_two_diverged_sides_are_not_comparable() -> None:
    diverged: dict[int, float] = {1: -math.inf, 2: -math.inf}
    contrast = compare([(1, diverged), (-1, diverged)])
    assert not (contrast.is_above)
    assert not (contrast.is_significantly_above())
    assert not (contrast.is_significantly_below())
