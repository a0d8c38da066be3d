"""The theorem's quantities match hand calculations; the proof's step sizes do what the proof needs."""

import math
from dataclasses import replace

import numpy as np
import pytest

from fedcm.errors import UserError
from fedcm.theory.problems.known_problem import Constants
from fedcm.theory.theorem import bounds, proof_step_sizes
from fedcm.theory.theorem.bounds import TheoremSetting

SETTING = TheoremSetting(Constants(0.5, 2.0, 3.0, 4.0), 5.0, clients=10, cohort_size=5, steps=2, alpha=0.5)


def test_constants_match_hand_calculation() -> None:
    assert bounds.compute_stated_c1(SETTING) == 9 + 2 * 0.5 * 16 + 10 * 25
    assert bounds.compute_stated_c2(SETTING) == 0.5 * (9 / 2 + 16 + 25)
    assert bounds.compute_proof_c1(SETTING) == 10 * 10 * 25 + 12 * 2 * 0.5 * 16 + 2 * 9
    assert bounds.compute_proof_c2(SETTING) == 6 * 0.5 * 16 + 6 * 0.5 * 25 + 0.5 * 9 / 2
    v = 16 * bounds.compute_proof_c1(SETTING) / 10 + 480 * 4 * 4 * 0.01**2 * bounds.compute_proof_c2(SETTING)
    assert bounds.compute_norm_bound(SETTING, 0.01) == pytest.approx(v)
    assert bounds.compute_leading_noise(SETTING) == pytest.approx(9 / 10 + 5 / (5 * 9) * 16)


def test_stated_bounds_match_hand_calculation() -> None:
    c1, c2, ks, t = 275, 22.75, 10, 100
    first = (c1 + c2) / (0.5 * ks * t) + 2 * (c1 + ks * c2) / (0.25 * 0.25 * ks * t**2) + 0.5 * 7 * math.exp(-50)
    assert bounds.compute_strongly_convex_bound(SETTING, t, 7.0) == pytest.approx(first)
    second = math.sqrt(7 * (c1 + c2) / (ks * t)) + math.cbrt(2 * 49 * (c1 + ks * c2) / (0.25 * ks * t**2))
    assert bounds.compute_convex_bound(SETTING, t, 7.0) == pytest.approx(second)
    third = math.sqrt(2 * 7 * (c1 + c2) / (ks * t)) + math.cbrt(4 * 49 * (c1 + ks * c2) / (0.25 * ks * t**2))
    assert bounds.compute_nonconvex_bound(SETTING, t, 7.0) == pytest.approx(third)


def test_lemma_bounds_match_hand_calculation() -> None:
    """σ_l² = 9, σ_g² = 16, G² = 25, L = 2, K = 2, S = 5, N = 10, α = ½."""
    drift = 3 * 2 * 0.01 * (6 * 0.5 * 2 * 16 + 6 * 0.5 * 2 * 25 + 2 * 0.5 * 2 * 11 + 0.25 * 9)
    assert drift == pytest.approx(0.06 * (96 + 150 + 22 + 2.25))
    assert bounds.compute_drift_bound(SETTING, 0.1, momentum=11.0) == pytest.approx(16.215)
    gradient = 10 * 4 * 0.5 + 10 * 25 + 12 / 5 * 0.5 * 16 + 2 * 9 / 10
    assert gradient == pytest.approx(20 + 250 + 19.2 + 1.8)
    assert bounds.compute_mean_gradient_bound(SETTING, drift=0.5) == pytest.approx(291.0)
    assert bounds.compute_momentum_step_bound(0.25, 8.0, 4.0) == 0.25 * 8 + 0.75 * 4


EASY = TheoremSetting(Constants(0.5, 1.0, 1.0, 0.0), 1.0, clients=2, cohort_size=2, steps=1, alpha=0.5)


def test_explicit_bounds_match_hand_calculation() -> None:
    """σ_l² = G² = L = 1, σ_g = 0, K = 1, S = N = 2, α = ½, η_l = 0.1, so that (1 − α)/α = 1."""
    c1, c2 = 2 + 10 * 2, 0.5 * (6 + 1)
    v = 16 * c1 / 2 + 480 * 0.01 * c2
    assert v == pytest.approx(192.8)
    drift = 3 * 0.01 * (6 * 0.5 + 2 * 0.5 * v + 0.25)
    assert drift == pytest.approx(5.8815)
    lr, rounds = 0.4, 2
    each = 2 * 5.8815 + 2 * 0.16 * 192.8 + 0.4 * 192.8 / 2  # 2Lε + 2Lη²V + ηV/2
    assert each == pytest.approx(11.763 + 61.696 + 38.56)
    faded = 0.9**2  # q = 1 − μη/2 = 0.9
    start = 0.5 * 7 / 4 * faded / (1 - faded)
    assert bounds.compute_explicit_strongly_convex_bound(EASY, rounds, 7.0, 0.1, lr) == pytest.approx(start + 112.019)
    assert bounds.compute_explicit_convex_bound(EASY, rounds, 7.0, 0.1, lr) == pytest.approx(
        7 / (2 * 0.4 * 2) + 112.019
    )
    squares = 2 * 7 / (0.4 * 2) + 0.4 * 192.8 + 2 * 5.8815 + 2 * 0.16 * 192.8
    assert squares == pytest.approx(17.5 + 77.12 + 11.763 + 61.696)
    assert bounds.compute_explicit_nonconvex_bound(EASY, rounds, 7.0, 0.1, lr) == pytest.approx(168.079)


def test_explicit_bounds_depend_on_smoothness_and_alpha() -> None:
    """L = 2 and α = ¼, so that (1 − α)/α = 3; σ_l = σ_g = 0, G = 1, K = 1, S = N = 2, η_l = 0.05."""
    setting = TheoremSetting(Constants(0.5, 2.0, 0.0, 0.0), 1.0, clients=2, cohort_size=2, steps=1, alpha=0.25)
    v = 160 + 480 * 0.01 * 0.25 * 6
    drift = 3 * 0.0025 * (6 * 0.25 + 2 * 0.75 * v)
    each = 4 * drift + 4 * 9 * 0.01 * v + 0.1 * v / 2
    assert bounds.compute_explicit_convex_bound(setting, 5, 3.0, 0.05, 0.1) == pytest.approx(3 / (2 * 0.1 * 5) + each)
    squares = 2 * 3 / (0.1 * 5) + 2 * 0.1 * v + 8 * drift + 8 * 9 * 0.01 * v
    assert bounds.compute_explicit_nonconvex_bound(setting, 5, 3.0, 0.05, 0.1) == pytest.approx(squares)


def test_recursion_constants_match_hand_calculation() -> None:
    """At η_l = 1/(8LSK²) = 1/320: c1 = V and c2 = L(C2 + V)/α²."""
    c1, c2 = 10 * 10 * 25 + 12 * 2 * 0.5 * 16 + 2 * 9, 6 * 0.5 * 16 + 6 * 0.5 * 25 + 0.5 * 9 / 2
    v = 16 * c1 / 10 + 480 * 4 * 4 / 320**2 * c2
    assert proof_step_sizes.compute_recursion_constants(SETTING) == pytest.approx((v, 2 * (c2 + v) / 0.25))


def test_clients_and_steps_do_not_reduce_the_gradient_term() -> None:
    """(C1 + C2)/(μKST) contains G²/(μT): only the noise falls as 1/(KST)."""
    large = TheoremSetting(Constants(0.5, 2.0, 3.0, 4.0), 5.0, clients=10**6, cohort_size=10**6, steps=10**4, alpha=0.5)
    assert bounds.compute_stated_c1(large) / large.gradients == pytest.approx(25, rel=1e-3)
    silent = TheoremSetting(
        Constants(0.5, 2.0, 3.0, 4.0), 0.0, clients=10**6, cohort_size=10**6, steps=10**4, alpha=0.5
    )
    assert bounds.compute_stated_c1(silent) / silent.gradients < 1e-8


def change_units(length: float, loss: float) -> TheoremSetting:
    """Return the same problem with x in units of 1/length and f in units of 1/loss."""
    c = SETTING.constants
    slope, curvature = loss / length, loss / length**2
    constants = Constants(
        c.strong_convexity * curvature, c.smoothness * curvature, c.noise * slope, c.dissimilarity * slope
    )
    return TheoremSetting(constants, SETTING.gradient_bound * slope, 10, 5, 2, 0.5)


def test_bounds_and_step_sizes_have_consistent_units() -> None:
    """An error in f, a squared gradient, and steps of x² over f; the print of η_l and of the log does not."""
    length, loss, rounds = 3.0, 7.0, 50
    other, distance, step = change_units(length, loss), 4 * length**2, length**2 / loss
    large = 1e6  # so that the strongly convex one is not all exponential
    for bound in (bounds.compute_strongly_convex_bound, bounds.compute_convex_bound):
        assert bound(other, rounds, distance) == pytest.approx(loss * bound(SETTING, rounds, 4.0))
    assert bounds.compute_nonconvex_bound(other, rounds, 4 * loss) == pytest.approx(
        (loss / length) ** 2 * bounds.compute_nonconvex_bound(SETTING, rounds, 4.0)
    )
    lr = proof_step_sizes.choose_strongly_convex_global_lr(0.5, large, rounds, 9.0)
    squared_slope = (loss / length) ** 2
    assert proof_step_sizes.choose_strongly_convex_global_lr(
        0.5 * loss / length**2, large * length**2, rounds, 9.0 * squared_slope
    ) == pytest.approx(lr * step)
    ours = [proof_step_sizes.choose_client_lr(0.01 * s, 2.0 / s, 2, 5) / s for s in (1.0, step)]
    printed = [proof_step_sizes.choose_client_lr_as_printed(0.01 * s, 2.0 / s, 2, 5) / s for s in (1.0, step)]
    assert ours[0] == pytest.approx(ours[1])
    assert printed[0] != pytest.approx(printed[1])


def test_printed_client_lr_is_the_same_at_smoothness_1() -> None:
    for lr in (0.001, 0.1, 5.0):
        assert proof_step_sizes.choose_client_lr(lr, 1.0, 4, 3) == proof_step_sizes.choose_client_lr_as_printed(
            lr, 1.0, 4, 3
        )


def test_client_lr_keeps_the_lemmas_limits_and_excludes_averaging() -> None:
    generator = np.random.default_rng(0)
    for _ in range(200):
        lr, smoothness = 10 ** generator.uniform(-4, 2), 10 ** generator.uniform(-2, 2)
        steps, cohort_size = int(generator.integers(1, 50)), int(generator.integers(1, 50))
        own = proof_step_sizes.choose_client_lr(lr, smoothness, steps, cohort_size)
        assert own <= 1 / (8 * steps * smoothness) * (1 + 1e-12)
        assert lr >= 8 * steps * own * (1 - 1e-12)  # averaging would be lr = steps · own


def unroll(rate: float, distance: float, rounds: int, first: float, second: float, lr: float) -> float:
    """Return the lemma's bound on Σ w_t a_t before the choice of η."""
    faded = (1 - rate * lr) ** rounds
    return rate * faded / (1 - faded) * distance + first * lr + second * lr**2


def test_strongly_convex_step_gives_the_lemmas_rate() -> None:
    """O: within 4·log² of μb·e^{−T/2} + c1/(μT) + c2/(μT)², on random recursions."""
    generator = np.random.default_rng(1)
    for _ in range(500):
        rate, distance, first, second = 10 ** generator.uniform(-3, 2, 4)
        rounds = int(10 ** generator.uniform(0.5, 5))
        lr = proof_step_sizes.choose_strongly_convex_global_lr(2 * rate, distance, rounds, first)
        log = max(1.0, math.log(rate**2 * distance * rounds / first))
        rate_bound = rate * distance * math.exp(-rounds / 2) + first / (rate * rounds) + second / (rate * rounds) ** 2
        assert unroll(rate, distance, rounds, first, second, lr) <= 4 * log**2 * rate_bound


def test_printed_squared_distance_breaks_the_lemmas_rate() -> None:
    rate, distance, first, rounds = 1.0, 1e-6, 1e-10, 10**6
    printed = math.log(rate**2 * distance**2 * rounds / first) / (rate * rounds)
    used = proof_step_sizes.choose_strongly_convex_global_lr(2 * rate, distance, rounds, first)
    rate_bound = first / (rate * rounds)
    log = math.log(rate**2 * distance * rounds / first)
    assert unroll(rate, distance, rounds, first, 0.0, used) <= 4 * log**2 * rate_bound
    assert unroll(rate, distance, rounds, first, 0.0, printed) > 1000 * log**2 * rate_bound


def test_convex_step_gives_the_lemmas_rate() -> None:
    generator = np.random.default_rng(2)
    for _ in range(500):
        start, first, second = 10 ** generator.uniform(-3, 3, 3)
        rounds = int(10 ** generator.uniform(0, 5))
        lr = proof_step_sizes.choose_global_lr(start, rounds, first, second)
        rate_bound = math.sqrt(start * first / rounds) + math.cbrt(start**2 * second / rounds**2)
        assert start / (lr * rounds) + first * lr + second * lr**2 <= 3 * rate_bound


@pytest.mark.parametrize("changes", [{"cohort_size": 11}, {"cohort_size": 0}, {"steps": 0}, {"alpha": 0.0}], ids=str)
def test_impossible_setting_raises(changes: dict[str, int]) -> None:
    with pytest.raises(UserError, match="must satisfy"):
        replace(SETTING, **changes)
