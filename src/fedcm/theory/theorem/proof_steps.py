"""The step sizes that the proof chooses, from the two lemmas that unroll a recursion and from the main proof.

    strongly convex   η_g = min( log(m²DT/c1)/(mT), 1/(2m) ),  m = μ/2        the lemma's μ is the recursion's, μ/2
    otherwise         η_g = min( √(b/(c1·T)), ∛(b/(c2·T)) )                   b = D or F
    clients           η_l = min( η_g/(8K), 1/(8LK), 1/(8LSK²) )

Three readings where the paper's print does not hold: its log has D², which has the wrong unit, and with which the first
term would not come to c1/(μT); at least 1 is taken for the log, since the lemma needs mη_gT ≥ 1; and its η_l has
min(η_g, 1)/(8LK), where η_g with a unit is compared with 1: that is min(Lη_g, 1)/(8LK) as above, and the same at L = 1.

This choice excludes plain averaging, η_g = η_l·K, since then η_g ≥ 8Kη_l. The inequality before the choice does not: it
needs η_l ≤ 1/(8KL) alone.
"""

import math

from fedcm.theory.theorem.bounds import Setting, norm_bound, proof_c2


def strongly_convex_global_lr(strong_convexity: float, distance: float, rounds: int, first: float) -> float:
    """`distance` is D; `first` is c1, what multiplies η_g in the recursion: V in the proof."""
    rate = strong_convexity / 2
    log = max(1.0, math.log(rate**2 * distance * rounds / first)) if first > 0 else math.inf
    return min(log / (rate * rounds), 1 / (2 * rate))


def global_lr(start: float, rounds: int, first: float, second: float) -> float:
    """Where f is not strongly convex. `start` is D or F; c1 and c2 multiply η_g and η_g² in the recursion."""
    by_first = math.sqrt(start / (first * rounds)) if first > 0 else math.inf
    by_second = math.cbrt(start / (second * rounds)) if second > 0 else math.inf
    return min(by_first, by_second)


def client_lr(global_lr: float, smoothness: float, steps: int, cohort: int) -> float:
    """η_l. It is so small that a round is nearly one step with K·S gradients at one point."""
    return min(global_lr / (8 * steps), 1 / (8 * smoothness * steps), 1 / (8 * smoothness * cohort * steps**2))


def printed_client_lr(global_lr: float, smoothness: float, steps: int, cohort: int) -> float:
    """η_l as the paper prints it, units aside."""
    return min(min(global_lr, 1) / (8 * smoothness * steps), 1 / (8 * smoothness * cohort * steps**2))


def recursion_constants(setting: Setting) -> tuple[float, float]:
    """(c1, c2) of the convex recursion as the main proof has them, V and L(C2 + V)/α², at its largest η_l.

    Not convex, they are L times as large.
    """
    largest = 1 / (8 * setting.constants.smoothness * setting.cohort * setting.steps**2)
    norm = norm_bound(setting, largest)
    return norm, setting.constants.smoothness * (proof_c2(setting) + norm) / setting.alpha**2
