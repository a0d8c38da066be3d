"""Differences have the intervals of Student and Welch, and none from one seed."""

import math
import statistics

import pytest
from scipy import stats

from fedcm.reports.claims.contrast import contrast

ONE = {1: 80.0, 2: 81.5, 3: 79.0, 4: 82.0}
OTHER = {1: 78.0, 2: 80.5, 3: 76.0, 4: 80.1}


@pytest.mark.parametrize("comparisons", [1, 4])
def test_the_same_seeds_are_compared_seed_by_seed(comparisons: int) -> None:
    found = contrast([(1, ONE), (-1, dict(reversed(OTHER.items())))])
    known = stats.ttest_rel(list(ONE.values()), list(OTHER.values())).confidence_interval(1 - 0.05 / comparisons)
    assert found.interval(comparisons) == pytest.approx((known.low, known.high))
    assert found.seeds == "paired over 4 seeds"


@pytest.mark.parametrize("comparisons", [1, 4])
def test_other_seeds_are_compared_by_each_sides_own_spread(comparisons: int) -> None:
    other = {seed + 1: value for seed, value in list(OTHER.items())[:3]}
    found = contrast([(1, ONE), (-1, other)])
    known = stats.ttest_ind(list(ONE.values()), list(other.values()), equal_var=False)
    interval = known.confidence_interval(1 - 0.05 / comparisons)
    assert found.interval(comparisons) == pytest.approx((interval.low, interval.high))
    assert found.seeds == "4 and 3 seeds"


def test_four_sides_of_the_same_seeds_are_one_difference_a_seed() -> None:
    third, fourth = {s: v - 3 for s, v in OTHER.items()}, {s: v * 1.01 for s, v in ONE.items()}
    found = contrast([(1, ONE), (-1, OTHER), (-1, third), (1, fourth)])
    by_seed = [ONE[s] - OTHER[s] - third[s] + fourth[s] for s in ONE]
    known = stats.ttest_1samp(by_seed, 0.0).confidence_interval(0.95)
    assert found.difference == pytest.approx(statistics.fmean(by_seed))
    assert found.interval() == pytest.approx((known.low, known.high))


def test_four_sides_of_other_seeds_add_their_variances() -> None:
    """With equal counts and variances Welch's freedom is the pooled one: four times that of one side."""
    sides = [{10 * k + seed: value for seed, value in ((1, -1.0), (2, 0.0), (3, 1.0))} for k in range(4)]
    found = contrast([(1, sides[0]), (-1, sides[1]), (-1, sides[2]), (1, sides[3])])
    assert found.error == pytest.approx(math.sqrt(4 * 1.0 / 3))
    assert found.freedom == pytest.approx(4 * 2)


@pytest.mark.parametrize(
    ("one", "other", "seeds"),
    [({1: 80.0}, {1: 70.0}, "one seed"), ({1: 80.0, 2: 81.0}, {1: 70.0}, "one seed in part")],
)
def test_one_seed_has_no_interval(one: dict[int, float], other: dict[int, float], seeds: str) -> None:
    found = contrast([(1, one), (-1, other)])
    assert found.interval() is None
    assert found.seeds == seeds
    assert found.is_above
    assert not found.is_surely_above()
    assert not contrast([(1, other), (-1, one)]).is_surely_below()


@pytest.mark.parametrize(
    ("difference", "above"), [(0.004, False), (0.006, True), (-0.004, False), (-0.006, False), (0.0, False)]
)
def test_what_rounds_to_nothing_is_a_tie_however_sure(difference: float, above: bool) -> None:
    theirs = {1: 80.0, 2: 70.0, 3: 75.0}
    found = contrast([(1, {seed: value + difference for seed, value in theirs.items()}), (-1, theirs)])
    assert (found.is_above, found.is_surely_above()) == (above, above)
    assert found.is_surely_below() == (difference == -0.006)


@pytest.mark.parametrize("seeds", [2, 3])
@pytest.mark.parametrize("paired", [True, False])
def test_nothing_is_sure_of_two_seeds_even_where_they_agree(seeds: int, paired: bool) -> None:
    """As accuracies of few test examples do."""
    better = dict.fromkeys(range(seeds), 81.0)
    worse = dict.fromkeys(range(seeds) if paired else range(10, 10 + seeds), 80.0)
    found = contrast([(1, better), (-1, worse)])
    assert found.interval() == (1.0, 1.0)
    assert found.is_clear_of_zero()
    assert found.is_surely_above() == (seeds == 3)
    assert contrast([(1, worse), (-1, better)]).is_surely_below() == (seeds == 3)


def test_what_is_sure_of_one_comparison_may_not_be_of_two() -> None:
    """Differences of 3, 5 and 6 have t = 5.3: beyond 4.3, within 6.2."""
    higher, lower = {1: 73.0, 2: 75.0, 3: 76.0}, {1: 70.0, 2: 70.0, 3: 70.0}
    above, below = contrast([(1, higher), (-1, lower)]), contrast([(1, lower), (-1, higher)])
    assert (above.is_surely_above(), above.is_surely_above(2), above.is_surely_below()) == (True, False, False)
    assert (below.is_surely_below(), below.is_surely_below(2), below.is_surely_above()) == (True, False, False)


def test_of_a_loss_a_tie_is_a_share_of_it() -> None:
    assert contrast([(1, {1: -1e-6}), (-1, {1: -2e-6})], relative=True).is_above
    assert not contrast([(1, {1: -1e-6}), (-1, {1: -2e-6})]).is_above
    assert not contrast([(1, {1: -10000.2}), (-1, {1: -10000.5})], relative=True).is_above


def test_seeds_without_any_spread_are_sure() -> None:
    assert contrast([(1, {1: 2.0, 2: 2.0}), (-1, {3: 1.0, 4: 1.0})]).interval() == (1.0, 1.0)


def test_what_diverged_with_every_seed_is_surely_worse() -> None:
    lost: dict[int, float] = {1: -math.inf, 2: -math.inf}
    alive = {1: 50.0, 2: 51.0}
    assert contrast([(1, alive), (-1, lost)]).is_surely_above(100)
    assert contrast([(1, lost), (-1, alive)]).is_surely_below(100)


@pytest.mark.parametrize("lost", [{1: -math.inf}, {1: -math.inf, 2: 60.0}, {1: -math.inf, 3: -math.inf, 4: 1.0}])
def test_what_diverged_with_some_seeds_or_one_is_worse_but_not_surely(lost: dict[int, float]) -> None:
    found = contrast([(1, {1: 50.0, 2: 51.0}), (-1, lost)])
    assert found.is_above
    assert not found.is_surely_above()


def test_of_two_that_diverged_neither_is_better() -> None:
    lost: dict[int, float] = {1: -math.inf, 2: -math.inf}
    found = contrast([(1, lost), (-1, lost)])
    assert not (found.is_above)
    assert not (found.is_surely_above())
    assert not (found.is_surely_below())
