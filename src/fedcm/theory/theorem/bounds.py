"""The quantities and bounds of the FedCM paper's Theorem 1 (section 4; proof in appendix C).

    C1 = σ_l² + K(1 − S/N)σ_g² + KSG²                C2 = α(σ_l²/K + σ_g² + G²)                          as stated
    C1 = 2σ_l² + 12K(1 − S/N)σ_g² + 10KSG²           C2 = 6ασ_g² + 6αG² + ασ_l²/K                        in the proof
    V  = 16·C1/(KS) + 480·K²L²η_l²·C2                bounds E‖Δ_t‖² and E‖Δ̃_t‖²

    strongly convex  (C1 + C2)/(μKST) + L(C1 + KS·C2)/(α²μ²KST²) + μD·e^{−T/2}
    general convex   √(D(C1 + C2)/(KST)) + ∛(L·D²(C1 + KS·C2)/(α²KST²))
    not convex       √(LF(C1 + C2)/(KST)) + ∛(L²F²(C1 + KS·C2)/(α²KST²))

D = ‖x_0 − x*‖², F = f(x_0) − f*. The paper's second term of the general convex case lacks the L; the units need it, and
the lemma behind it has it. Note that C1/(KS) contains G²: only σ_l² falls with K and S.
"""

import math
from dataclasses import dataclass
from typing import final

from fedcm.errors import UserError
from fedcm.theory.problems.known_problem import Constants


@final
@dataclass(frozen=True)
class TheoremSetting:
    """A problem's constants, the participation and the number of local steps.

    Raises:
        UserError: If the numbers are out of range.
    """

    constants: Constants
    gradient_bound: float  # G ≥ ‖∇f(x_t)‖; if f has no global bound, the largest along the run
    clients: int  # N
    cohort_size: int  # S
    steps: int  # K
    alpha: float = 1.0

    def __post_init__(self) -> None:
        if not 1 <= self.cohort_size <= self.clients or self.steps < 1 or not 0 < self.alpha <= 1:
            raise UserError(
                "S, N, K and α must satisfy 1 ≤ S ≤ N, K ≥ 1 and 0 < α ≤ 1, got "
                f"S = {self.cohort_size}, N = {self.clients}, K = {self.steps}, α = {self.alpha}"
            )

    @property
    def absent_share(self) -> float:
        """The share of clients that do not take part in a round, 1 − S/N."""
        return 1 - self.cohort_size / self.clients

    @property
    def gradients(self) -> int:
        """Stochastic gradients per round, KS."""
        return self.steps * self.cohort_size


def compute_stated_c1(setting: TheoremSetting) -> float:
    """Return C1 as the theorem states it."""
    c = setting.constants
    spread = setting.steps * setting.absent_share * c.dissimilarity**2
    return c.noise**2 + spread + setting.gradients * setting.gradient_bound**2


def compute_stated_c2(setting: TheoremSetting) -> float:
    """Return C2 as the theorem states it."""
    c = setting.constants
    return setting.alpha * (c.noise**2 / setting.steps + c.dissimilarity**2 + setting.gradient_bound**2)


def compute_proof_c1(setting: TheoremSetting) -> float:
    """Return C1 with the constants of the proof, from its lemma on V."""
    c = setting.constants
    spread = 12 * setting.steps * setting.absent_share * c.dissimilarity**2
    return 2 * c.noise**2 + spread + 10 * setting.gradients * setting.gradient_bound**2


def compute_proof_c2(setting: TheoremSetting) -> float:
    """Return C2 with the constants of the proof, from its lemma on V."""
    c = setting.constants
    return setting.alpha * (6 * c.dissimilarity**2 + 6 * setting.gradient_bound**2 + c.noise**2 / setting.steps)


def compute_norm_bound(setting: TheoremSetting, client_lr: float) -> float:
    """Return V, which bounds E‖Δ_t‖² and E‖Δ̃_t‖² if η_l ≤ 1/(8KL)."""
    pull = (setting.steps * setting.constants.smoothness * client_lr) ** 2
    return 16 * compute_proof_c1(setting) / setting.gradients + 480 * pull * compute_proof_c2(setting)


def compute_drift_bound(setting: TheoremSetting, client_lr: float, momentum: float) -> float:
    """Return the bound ε_t ≤ 3Kη_l²·(6αKσ_g² + 6αKG² + 2(1 − α)K·E‖Δ_t‖² + α²σ_l²), which needs η_l ≤ 1/(4LK).

    `momentum` is E‖Δ_t‖².
    """
    c, alpha, steps = setting.constants, setting.alpha, setting.steps
    own = 6 * alpha * steps * (c.dissimilarity**2 + setting.gradient_bound**2)
    return 3 * steps * client_lr**2 * (own + 2 * (1 - alpha) * steps * momentum + alpha**2 * c.noise**2)


def compute_mean_gradient_bound(setting: TheoremSetting, drift: float) -> float:
    """Return the bound E‖Δ̃_t‖² ≤ 10L²ε_t + 10G² + (12/S)(1 − S/N)σ_g² + 2σ_l²/(KS)."""
    c = setting.constants
    sampled = 12 / setting.cohort_size * setting.absent_share * c.dissimilarity**2
    moved = 10 * c.smoothness**2 * drift
    return moved + 10 * setting.gradient_bound**2 + sampled + 2 * c.noise**2 / setting.gradients


def compute_momentum_step_bound(alpha: float, mean_gradient: float, momentum: float) -> float:
    """Return the bound ‖Δ_{t+1}‖² ≤ α‖Δ̃_t‖² + (1 − α)‖Δ_t‖².

    The paper prints Δ̃_{t+1}; by Lemma 1 it is Δ̃_t.
    """
    return alpha * mean_gradient + (1 - alpha) * momentum


def compute_strongly_convex_bound(setting: TheoremSetting, rounds: int, distance: float) -> float:
    """Return the bound of Theorem 1, case 1, with O's constant set to 1; `distance` is D."""
    c, c1, c2, gradients = setting.constants, compute_stated_c1(setting), compute_stated_c2(setting), setting.gradients
    leading = (c1 + c2) / (c.strong_convexity * gradients * rounds)
    second = c.smoothness * (c1 + gradients * c2)
    second /= (setting.alpha * c.strong_convexity * rounds) ** 2 * gradients
    return leading + second + c.strong_convexity * distance * math.exp(-rounds / 2)


def compute_convex_bound(setting: TheoremSetting, rounds: int, distance: float) -> float:
    """Return the bound of Theorem 1, case 2, with O's constant set to 1 and the L that the paper omits."""
    c1, c2, gradients = compute_stated_c1(setting), compute_stated_c2(setting), setting.gradients
    second = setting.constants.smoothness * distance**2 * (c1 + gradients * c2)
    second /= setting.alpha**2 * gradients * rounds**2
    return math.sqrt(distance * (c1 + c2) / (gradients * rounds)) + math.cbrt(second)


def compute_nonconvex_bound(setting: TheoremSetting, rounds: int, excess: float) -> float:
    """Return the bound of Theorem 1, case 3, on the mean of ‖∇f(z_t)‖², with O's constant set to 1; `excess` is F."""
    c1, c2 = compute_stated_c1(setting), compute_stated_c2(setting)
    gradients, smoothness = setting.gradients, setting.constants.smoothness
    second = (smoothness * excess) ** 2 * (c1 + gradients * c2) / (setting.alpha**2 * gradients * rounds**2)
    return math.sqrt(smoothness * excess * (c1 + c2) / (gradients * rounds)) + math.cbrt(second)


def compute_explicit_strongly_convex_bound(
    setting: TheoremSetting, rounds: int, distance: float, client_lr: float, global_lr: float
) -> float:
    """Return the bound that the proof shows before it uses O, for any η_g < 2/μ and η_l ≤ 1/(8KL):

    Σ w_t E f(z_t) − f* ≤ (μD/4)·qᵀ/(1 − qᵀ) + 2Lε + 2L((1 − α)/α)²η_g²V + η_gV/2,  q = 1 − μη_g/2,

    where ε is the drift bound at E‖Δ_t‖² = V.
    """
    c = setting.constants
    norm = compute_norm_bound(setting, client_lr)
    faded = math.exp(rounds * math.log1p(-c.strong_convexity * global_lr / 2))
    start = c.strong_convexity * distance / 4 * faded / (1 - faded)
    return start + _compute_noise_and_drift(setting, client_lr, global_lr, norm)


def compute_explicit_convex_bound(
    setting: TheoremSetting, rounds: int, distance: float, client_lr: float, global_lr: float
) -> float:
    """Return the same bound at μ = 0, for the plain mean of z_t: D/(2η_gT) replaces the term with qᵀ."""
    norm = compute_norm_bound(setting, client_lr)
    return distance / (2 * global_lr * rounds) + _compute_noise_and_drift(setting, client_lr, global_lr, norm)


def _compute_noise_and_drift(setting: TheoremSetting, client_lr: float, global_lr: float, norm: float) -> float:
    smoothness, ratio = setting.constants.smoothness, (1 - setting.alpha) / setting.alpha
    drift = compute_drift_bound(setting, client_lr, norm)
    return 2 * smoothness * drift + 2 * smoothness * (ratio * global_lr) ** 2 * norm + global_lr * norm / 2


def compute_explicit_nonconvex_bound(
    setting: TheoremSetting, rounds: int, excess: float, client_lr: float, global_lr: float
) -> float:
    """Return the bound that the proof shows for case 3 before it uses O:

    (1/T)Σ E‖∇f(z_t)‖² ≤ 2F/(η_gT) + Lη_gV + 2L²ε + 2L²((1 − α)/α)²η_g²V.
    """
    smoothness, ratio = setting.constants.smoothness, (1 - setting.alpha) / setting.alpha
    norm = compute_norm_bound(setting, client_lr)
    drift = compute_drift_bound(setting, client_lr, norm)
    return (
        2 * excess / (global_lr * rounds)
        + smoothness * global_lr * norm
        + 2 * smoothness**2 * (drift + (ratio * global_lr) ** 2 * norm)
    )


def compute_leading_noise(setting: TheoremSetting) -> float:
    """Return the exact variance of Δ̃_t where ∇f = 0: σ_l²/(KS) + (N − S)/(S(N − 1))·σ_g².

    It is C1/(KS) without G².
    """
    c, population = setting.constants, setting.clients
    sampled = (population - setting.cohort_size) / (setting.cohort_size * max(population - 1, 1))
    return c.noise**2 / setting.gradients + sampled * c.dissimilarity**2
