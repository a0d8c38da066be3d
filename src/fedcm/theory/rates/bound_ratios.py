"""FedCM's measured errors beside the theorem's bounds.

G is the largest ‖∇f(x_t)‖ along the run (root mean square over replicates) and σ_g the larger of its values at x_0 and
x*, so the bounds are about as low as the theorem allows. The stated bound sets O's constant to 1. The explicit bound is
what the proof shows at the step sizes that were used; it needs η_l ≤ 1/(8KL).
"""

from typing import NamedTuple

from fedcm.theory.problems.known_problem import compute_dissimilarity
from fedcm.theory.rates.experiment import Case, RatePoint
from fedcm.theory.rates.measurement import PointResult, RateRow
from fedcm.theory.theorem import bounds
from fedcm.theory.theorem.bounds import TheoremSetting


class BoundComparison(NamedTuple):
    """The measured error and both bounds at one point."""

    error: float
    stated: float
    explicit: float | None  # None if η_l is above the proof's limit


def compare_with_bounds(row: RateRow) -> list[BoundComparison]:
    """Compare a row of FedCM with the theorem's bounds, point by point."""
    pairs = zip(row.experiment.points, row.results, strict=True)
    return [_compare_at_point(row.experiment.case, point, result) for point, result in pairs]


def _compare_at_point(case: Case, point: RatePoint, result: PointResult) -> BoundComparison:
    if result.largest_gradient is None:
        raise ValueError("only FedCM's errors can be compared with the theorem's bounds")
    constants = point.problem.constants
    dissimilarity = max(constants.dissimilarity, float(compute_dissimilarity(point.problem, point.start[None])))
    setting = point.make_setting(result.largest_gradient, dissimilarity=dissimilarity)
    allowed = result.best.client_lr <= (1 + 1e-12) / (8 * point.steps * constants.smoothness)
    explicit = _compute_explicit_bound(case, setting, point, result) if allowed else None
    return BoundComparison(float(result.errors.mean()), _compute_stated_bound(case, setting, point), explicit)


def _compute_stated_bound(case: Case, setting: TheoremSetting, point: RatePoint) -> float:
    if case == "strongly convex":
        return bounds.compute_strongly_convex_bound(setting, point.rounds, point.distance)
    if case == "general convex":
        return bounds.compute_convex_bound(setting, point.rounds, point.distance)
    return bounds.compute_nonconvex_bound(setting, point.rounds, point.excess)


def _compute_explicit_bound(case: Case, setting: TheoremSetting, point: RatePoint, result: PointResult) -> float:
    client_lr, global_lr = result.best.client_lr, result.best.global_lr
    if case == "strongly convex":
        return bounds.compute_explicit_strongly_convex_bound(
            setting, point.rounds, point.distance, client_lr, global_lr
        )
    if case == "general convex":
        return bounds.compute_explicit_convex_bound(setting, point.rounds, point.distance, client_lr, global_lr)
    return bounds.compute_explicit_nonconvex_bound(setting, point.rounds, point.excess, client_lr, global_lr)
