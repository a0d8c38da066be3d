"""Slopes are found with intervals that cover the truth as often as they say."""

import numpy as np
import pytest

from fedcm.errors import UserError
from fedcm.theory.rates.slopes import Slope, exponent, fit, judged, student_quantile

X = [1.0, 2.0, 4.0, 8.0, 16.0]


def replicates(x: list[float], exponent: float, draw: np.random.Generator, count: int) -> list[np.ndarray]:
    return [value**exponent * draw.gamma(4.0, 0.25, count) for value in x]


def test_an_exact_power_law_gives_its_exponent() -> None:
    errors = [5 * x**-0.5 for x in X]
    assert np.allclose(fit(X, [np.full(3, error) for error in errors]), -0.5, atol=1e-12)
    assert exponent(X[:2], errors[:2]) == pytest.approx(-0.5)


@pytest.mark.parametrize(("x", "count"), [(X, 24), (X[:3], 12)], ids=["5 points of 24", "3 points of 12"])
def test_the_interval_covers_the_truth_about_19_times_in_20(x: list[float], count: int) -> None:
    """Of 800: 760 with a standard deviation of 6. Plain quantiles of 12 replicates cover about 740."""
    draw = np.random.default_rng(0)
    covered = sum(s.low <= -1 <= s.high for s in (fit(x, replicates(x, -1, draw, count)) for _ in range(800)))
    assert 748 <= covered <= 785


def test_students_quantile_is_that_of_the_tables() -> None:
    found = [student_quantile(degrees) for degrees in (7, 11, 23, 47, 10**6)]
    assert found == pytest.approx([2.365, 2.201, 2.069, 2.012, 1.960], abs=0.01)


def test_a_single_replicate_has_no_interval() -> None:
    with pytest.raises(UserError, match="2 replicates a point at least, got 1"):
        fit(X[:2], [np.ones(1), np.ones(4)])


def test_verdicts() -> None:
    assert judged(Slope(-0.8, -0.85, -0.75), -1.0) == "does not show"
    assert judged(Slope(-0.8, -0.85, -0.75), -1.0, with_log=-0.7) == "agrees"
    assert judged(Slope(-1.3, -1.4, -1.2), -1.0, with_log=-0.7) == "faster than proven"
    assert judged(Slope(0.6, 0.5, 0.7), 2.0) == "faster than proven"
    assert judged(Slope(0.6, 0.5, 0.7), "grows") == "agrees"
    assert judged(Slope(0.0, -0.05, 0.05), "grows") == "does not show"
    assert judged(Slope(-0.5, -0.9, -0.1), "grows") == "does not show"
    assert judged(Slope(0.1, -0.1, 0.3), None) == "nothing proven"
    assert judged(Slope(float("nan"), 0.0, 0.0), -1.0) == "diverged"


def test_what_is_known_too_badly_to_disagree_does_not_agree() -> None:
    assert judged(Slope(0.0, -1.0, 1.0), -1.0) == "cannot tell"
    assert judged(Slope(-1.0, -1.2, -0.8), -1.0) == "cannot tell"  # in the band, but wider than it
    assert judged(Slope(-1.0, -1.2, -0.8), -1.0, with_log=-0.7) == "agrees"
    assert judged(Slope(-0.88, -0.95, -0.81), -1.0) == "cannot tell"  # narrow, but the exponent is out of the band
    assert judged(Slope(-1.0, -1.09, -0.91), -1.0) == "agrees"
    assert judged(Slope(0.1, -0.1, 0.3), "grows") == "cannot tell"
    assert judged(Slope(-3.0, -4.0, -2.0), -1.0) == "faster than proven"  # wide, and yet certain
