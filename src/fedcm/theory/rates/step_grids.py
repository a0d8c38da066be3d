"""The step sizes that every algorithm tries at a point.

"tuned": η_g from the proof's lemma, times ¼ to 4, at most 1/L. The lemma's c1 is the noise of the mean gradient; the
proof's V would be tens of times larger, since it contains G². η_l is the proof's, so drift plays no part. Client state
removes σ_g from the noise, so the grids of SCAFFOLD and FedDyn are computed without it. FedDyn has no η_g: it averages,
with η_l = η_g/K and a = 1/η_g, which makes its step as long as the others'.

"averaging": η_g = η_l·K as in practice, over a grid of η_l (and of FedDyn's a), the same for every algorithm.

"proof": exactly the proof's step sizes.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from fedcm.algorithms import FedAvg, FedCM, FedDyn, Scaffold
from fedcm.core.algorithm import Algorithm
from fedcm.errors import UserError
from fedcm.theory.problems.saturating import Saturating
from fedcm.theory.rates.experiment import Case, RateExperiment, RatePoint
from fedcm.theory.theorem.bounds import compute_leading_noise
from fedcm.theory.theorem.proof_step_sizes import (
    choose_client_lr,
    choose_global_lr,
    choose_strongly_convex_global_lr,
    compute_recursion_constants,
)
from fedcm.theory.theorem.simulation import StepSizes

PROXIMAL = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)  # FedDyn's a for "averaging"
STATEFUL = ("scaffold", "feddyn")  # algorithms with client state


class StepGrid(NamedTuple):
    """Several step sizes of one algorithm, simulated side by side."""

    algorithm: Algorithm[Any, Any, Any, Any]
    sizes: StepSizes


class StepCandidate(NamedTuple):
    """One algorithm with one pair of step sizes, from its grids."""

    algorithm: Algorithm[Any, Any, Any, Any]
    client_lr: float
    global_lr: float

    @property
    def proximal(self) -> float | None:
        """FedDyn's a; None for other algorithms."""
        return self.algorithm.alpha if isinstance(self.algorithm, FedDyn) else None

    def as_grid(self) -> StepGrid:
        """Return a grid of this candidate alone."""
        return StepGrid(self.algorithm, StepSizes((self.client_lr,), (self.global_lr,)))


def make_grids(experiment: RateExperiment, point: RatePoint, name: str) -> list[StepGrid]:
    """Make the grids that the algorithm `name` tries at a point."""
    if experiment.steps == "averaging":
        sizes = StepSizes.for_averaging(experiment.client_lrs, point.steps)
        return [StepGrid(algorithm, sizes) for algorithm in _make_algorithms(name, point, PROXIMAL)]
    if experiment.steps == "proof":
        middle, times = compute_proof_global_lr(point), (1.0,)
    else:
        middle, times = estimate_global_lr(experiment.case, point, name in STATEFUL), experiment.times
    smoothness = point.problem.constants.smoothness
    global_lrs = sorted({min(factor * middle, 1 / smoothness) for factor in times})
    if name == "feddyn":
        return [StepGrid(FedDyn(1 / lr), StepSizes.for_averaging([lr / point.steps], point.steps)) for lr in global_lrs]
    client_lrs = tuple(choose_client_lr(lr, smoothness, point.steps, point.cohort_size) for lr in global_lrs)
    return [
        StepGrid(algorithm, StepSizes(client_lrs, tuple(global_lrs))) for algorithm in _make_algorithms(name, point, ())
    ]


def _make_algorithms(name: str, point: RatePoint, proximal: Sequence[float]) -> list[Algorithm[Any, Any, Any, Any]]:
    return {
        "fedcm": [FedCM(point.alpha)],
        "fedavg": [FedAvg()],
        "scaffold": [Scaffold()],
        "feddyn": [FedDyn(a) for a in proximal],
    }[name]


def list_candidates(grids: Sequence[StepGrid]) -> list[StepCandidate]:
    """List the candidates of all grids, in the order in which they are simulated."""
    return [
        StepCandidate(algorithm, client_lr, global_lr)
        for algorithm, sizes in grids
        for client_lr, global_lr in zip(sizes.client_lr, sizes.global_lr, strict=True)
    ]


def find_edges(best: StepCandidate, candidates: Sequence[StepCandidate], longest: float | None) -> tuple[str, ...]:
    """Describe where the best candidate is at an edge of its grid, so that a better one may be outside.

    Args:
        best: The best candidate.
        candidates: All candidates.
        longest: 1/L if the grid is limited to it, otherwise None.

    >>> grid = [StepCandidate(FedAvg(), 0.1, lr) for lr in (1.0, 2.0, 4.0)]
    >>> find_edges(grid[2], grid, longest=None)
    ('largest η',)
    """
    edges = []
    if best.global_lr == longest:
        edges.append("η = 1/L")
    else:
        edges += _find_ends("η", best.global_lr, {other.global_lr for other in candidates})
    rivals = {other.proximal for other in candidates if other.global_lr == best.global_lr}
    if best.proximal is not None:
        edges += _find_ends("a", best.proximal, {a for a in rivals if a is not None})
    return tuple(edges)


def _find_ends(letter: str, value: float, grid: set[float]) -> list[str]:
    if len(grid) < 2:
        return []
    return [f"{word} {letter}" for word, end in (("smallest", min(grid)), ("largest", max(grid))) if value == end]


def estimate_global_lr(case: Case, point: RatePoint, stateful: bool = False) -> float:
    """Return the lemma's η_g with the noise of the mean gradient in place of V; client state removes σ_g from it."""
    problem = point.problem
    noise = compute_leading_noise(point.make_setting(dissimilarity=0.0) if stateful else point.make_setting())
    if case == "strongly convex":
        return choose_strongly_convex_global_lr(problem.constants.strong_convexity, point.distance, point.rounds, noise)
    if case == "general convex":
        return choose_global_lr(point.distance, point.rounds, noise, 0.0)
    return choose_global_lr(point.excess, point.rounds, problem.constants.smoothness * noise, 0.0)


def compute_proof_global_lr(point: RatePoint) -> float:
    """Return η_g of the nonconvex case, with every constant of the proof.

    Raises:
        UserError: If the problem's gradient is not bounded everywhere.
    """
    problem = point.problem
    if not isinstance(problem, Saturating):
        raise UserError(
            "the proof's step sizes need a problem whose gradient is bounded everywhere, got "
            f"{type(problem).__name__}; use Saturating"
        )
    first, second = compute_recursion_constants(point.make_setting(problem.gradient_bound))
    smoothness = problem.constants.smoothness
    return choose_global_lr(point.excess, point.rounds, smoothness * first, smoothness * second)
