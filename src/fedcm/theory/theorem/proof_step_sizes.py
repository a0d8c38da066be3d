"""The step sizes that the proof chooses: two lemmas that unroll a recursion give η_g, the main proof gives η_l.

    strongly convex   η_g = min( log(m²DT/c1)/(mT), 1/(2m) ),  m = μ/2        the lemma's μ is the recursion's, μ/2
    otherwise         η_g = min( √(b/(c1·T)), ∛(b/(c2·T)) )                   b = D or F
    clients           η_l = min( η_g/(8K), 1/(8LK), 1/(8LSK²) )

This differs from the printed paper in three places:

- The printed logarithm has D². Its unit is wrong, and the first term would not become c1/(μT).
- The logarithm is at least 1 here, since the lemma needs mη_gT ≥ 1.
- The printed η_l has min(η_g, 1)/(8LK), which compares η_g, which has a unit, with 1. Here it is min(Lη_g, 1)/(8LK); at
  L = 1 both are equal.

The choice implies η_g ≥ 8Kη_l and so excludes plain averaging, η_g = η_l·K. The inequality before the choice needs only
η_l ≤ 1/(8KL) and allows it.
"""

import math

from fedcm.theory.theorem.bounds import TheoremSetting, compute_norm_bound, compute_proof_c2


def choose_strongly_convex_global_lr(strong_convexity: float, distance: float, rounds: int, first: float) -> float:
    """Return η_g for a strongly convex f.

    Args:
        strong_convexity: μ.
        distance: D = ‖x_0 − x*‖².
        rounds: T.
        first: c1, the coefficient of η_g in the recursion; V in the proof.
    """
    rate = strong_convexity / 2
    log = max(1.0, math.log(rate**2 * distance * rounds / first)) if first > 0 else math.inf
    return min(log / (rate * rounds), 1 / (2 * rate))


def choose_global_lr(start: float, rounds: int, first: float, second: float) -> float:
    """Return η_g for an f that is not strongly convex.

    Args:
        start: D for a convex f, otherwise F.
        rounds: T.
        first: c1, the coefficient of η_g in the recursion.
        second: c2, the coefficient of η_g².
    """
    by_first = math.sqrt(start / (first * rounds)) if first > 0 else math.inf
    by_second = math.cbrt(start / (second * rounds)) if second > 0 else math.inf
    return min(by_first, by_second)


def choose_client_lr(global_lr: float, smoothness: float, steps: int, cohort_size: int) -> float:
    """Return η_l. It is so small that a round is nearly one step with K·S gradients at one point."""
    return min(global_lr / (8 * steps), 1 / (8 * smoothness * steps), 1 / (8 * smoothness * cohort_size * steps**2))


def choose_client_lr_as_printed(global_lr: float, smoothness: float, steps: int, cohort_size: int) -> float:
    """Return η_l as the paper prints it, with inconsistent units."""
    return min(min(global_lr, 1) / (8 * smoothness * steps), 1 / (8 * smoothness * cohort_size * steps**2))


def compute_recursion_constants(setting: TheoremSetting) -> tuple[float, float]:
    """Return (c1, c2) of the convex recursion in the main proof: V and L(C2 + V)/α², at its largest η_l.

    Without convexity both are L times as large.
    """
    largest = 1 / (8 * setting.constants.smoothness * setting.cohort_size * setting.steps**2)
    norm = compute_norm_bound(setting, largest)
    return norm, setting.constants.smoothness * (compute_proof_c2(setting) + norm) / setting.alpha**2
