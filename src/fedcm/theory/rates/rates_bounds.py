"""FedCM's measured errors beside the theorem's bounds.

G is the largest ‖∇f(x_t)‖ on the way (root mean square over replicates), σ_g the larger of those at x_0 and x*: as low
as the theorem allows, or nearly. The stated bound has 1 for what O hides. The explicit one is what the proof shows at
the very steps that were taken, and needs η_l ≤ 1/(8KL).
"""

from typing import NamedTuple

from fedcm.theory.problems.known_problem import dissimilarity
from fedcm.theory.rates.measure import Found, Row
from fedcm.theory.rates.points import Case, Point
from fedcm.theory.theorem import bounds
from fedcm.theory.theorem.bounds import Setting


class Beside(NamedTuple):
    """At one point."""

    error: float
    stated: float
    explicit: float | None  # None where η_l is beyond the proof's limit


def beside(row: Row) -> list[Beside]:
    """A row of FedCM, point by point."""
    pairs = zip(row.experiment.points, row.found, strict=True)
    return [_at(row.experiment.case, point, found) for point, found in pairs]


def _at(case: Case, point: Point, found: Found) -> Beside:
    if found.steepest is None:
        raise ValueError("the theorem's bounds are FedCM's")
    constants = point.problem.constants
    differ = max(constants.dissimilarity, float(dissimilarity(point.problem, point.start[None])))
    setting = point.setting(found.steepest, dissimilarity=differ)
    allowed = found.chosen.client_lr <= (1 + 1e-12) / (8 * point.steps * constants.smoothness)
    explicit = _explicit(case, setting, point, found) if allowed else None
    return Beside(float(found.errors.mean()), _stated(case, setting, point), explicit)


def _stated(case: Case, setting: Setting, point: Point) -> float:
    if case == "strongly convex":
        return bounds.strongly_convex_bound(setting, point.rounds, point.distance)
    if case == "general convex":
        return bounds.convex_bound(setting, point.rounds, point.distance)
    return bounds.nonconvex_bound(setting, point.rounds, point.excess)


def _explicit(case: Case, setting: Setting, point: Point, found: Found) -> float:
    own, wide = found.chosen.client_lr, found.chosen.global_lr
    if case == "strongly convex":
        return bounds.explicit_strongly_convex_bound(setting, point.rounds, point.distance, own, wide)
    if case == "general convex":
        return bounds.explicit_convex_bound(setting, point.rounds, point.distance, own, wide)
    return bounds.explicit_nonconvex_bound(setting, point.rounds, point.excess, own, wide)
