"""Slopes are found with intervals that cover the truth as often as they say."""

import numpy as np

from fedcm.theory.slopes import Slope, fit, judged

X = [1.0, 2.0, 4.0, 8.0, 16.0]


def replicates(exponent: float, draw: np.random.Generator, count: int = 32) -> list[np.ndarray]:
    return [x**exponent * draw.gamma(4.0, 0.25, count) for x in X]


def test_an_exact_power_law_gives_its_exponent() -> None:
    slope = fit(X, [np.full(3, 5 * x**-0.5) for x in X])
    assert np.allclose(slope, -0.5, atol=1e-12)


def test_the_interval_covers_the_truth_about_19_times_in_20() -> None:
    """Of 300, with a standard deviation of 4: resampling 32 replicates covers a little less than it says."""
    draw = np.random.default_rng(0)
    covered = sum(slope.low <= -1 <= slope.high for slope in (fit(X, replicates(-1, draw)) for _ in range(300)))
    assert 265 <= covered <= 299


def test_verdicts() -> None:
    assert judged(Slope(-0.8, -0.85, -0.75), -1.0) == "does not show"
    assert judged(Slope(-0.8, -0.85, -0.75), -1.0, with_log=-0.7) == "agrees"
    assert judged(Slope(-1.3, -1.4, -1.2), -1.0, with_log=-0.7) == "faster than proven"
    assert judged(Slope(0.6, 0.5, 0.7), 2.0) == "faster than proven"
    assert judged(Slope(0.6, 0.5, 0.7), "grows") == "agrees"
    assert judged(Slope(0.1, -0.1, 0.3), "grows") == "does not show"
    assert judged(Slope(0.1, -0.1, 0.3), None) == "nothing proven"
    assert judged(Slope(float("nan"), 0.0, 0.0), -1.0) == "diverged"
