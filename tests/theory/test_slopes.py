"""Fitted slopes have intervals that cover the truth as often as stated."""

import numpy as np
import pytest

from fedcm.errors import UserError
from fedcm.theory.rates.slopes import Slope, compute_student_quantile, fit_exponent, fit_slope, judge

X = [1.0, 2.0, 4.0, 8.0, 16.0]


def make_replicates(x: list[float], exponent: float, draw: np.random.Generator, count: int) -> list[np.ndarray]:
    return [value**exponent * draw.gamma(4.0, 0.25, count) for value in x]


def test_exact_power_law_gives_its_exponent() -> None:
    errors = [5 * x**-0.5 for x in X]
    assert np.allclose(fit_slope(X, [np.full(3, error) for error in errors]), -0.5, atol=1e-12)
    assert fit_exponent(X[:2], errors[:2]) == pytest.approx(-0.5)


@pytest.mark.slow
@pytest.mark.parametrize(("x", "count"), [(X, 24), (X[:3], 12)], ids=["5 points of 24", "3 points of 12"])
def test_interval_covers_the_truth_about_19_times_in_20(x: list[float], count: int) -> None:
    """760 of 800 expected, with a standard deviation of 6; plain quantiles of 12 replicates cover about 740."""
    draw = np.random.default_rng(0)
    covered = sum(
        s.low <= -1 <= s.high for s in (fit_slope(x, make_replicates(x, -1, draw, count)) for _ in range(800))
    )
    assert 748 <= covered <= 785


def test_student_quantile_matches_tables() -> None:
    quantiles = [compute_student_quantile(degrees) for degrees in (7, 11, 23, 47, 10**6)]
    assert quantiles == pytest.approx([2.365, 2.201, 2.069, 2.012, 1.960], abs=0.01)


def test_single_replicate_raises() -> None:
    with pytest.raises(UserError, match="at least 2 replicates per point, got 1"):
        fit_slope(X[:2], [np.ones(1), np.ones(4)])


def test_narrow_interval_has_a_clear_verdict() -> None:
    assert judge(Slope(-0.8, -0.85, -0.75), -1.0) == "does not show"
    assert judge(Slope(-0.8, -0.85, -0.75), -1.0, log_exponent=-0.7) == "agrees"
    assert judge(Slope(-1.3, -1.4, -1.2), -1.0, log_exponent=-0.7) == "faster than proven"
    assert judge(Slope(0.6, 0.5, 0.7), 2.0) == "faster than proven"
    assert judge(Slope(0.6, 0.5, 0.7), "grows") == "agrees"
    assert judge(Slope(0.0, -0.05, 0.05), "grows") == "does not show"
    assert judge(Slope(-0.5, -0.9, -0.1), "grows") == "does not show"
    assert judge(Slope(0.1, -0.1, 0.3), None) == "nothing proven"
    assert judge(Slope(float("nan"), 0.0, 0.0), -1.0) == "diverged"


def test_wide_interval_cannot_tell() -> None:
    assert judge(Slope(0.0, -1.0, 1.0), -1.0) == "cannot tell"
    assert judge(Slope(-1.0, -1.2, -0.8), -1.0) == "cannot tell"  # in the band, but wider than it
    assert judge(Slope(-1.0, -1.2, -0.8), -1.0, log_exponent=-0.7) == "agrees"
    assert judge(Slope(-0.88, -0.95, -0.81), -1.0) == "cannot tell"  # narrow, but the exponent is out of the band
    assert judge(Slope(-1.0, -1.09, -0.91), -1.0) == "agrees"
    assert judge(Slope(0.1, -0.1, 0.3), "grows") == "cannot tell"
    assert judge(Slope(-3.0, -4.0, -2.0), -1.0) == "faster than proven"  # wide, but certain
