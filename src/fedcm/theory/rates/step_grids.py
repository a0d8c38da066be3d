"""The step sizes among which every algorithm chooses at a point.

Of "tuned": η_g as the proof's lemma has it, with the noise of the mean gradient for its c1 (V would be tens of times
larger, for G² is in it), times ¼ to 4, never beyond 1/L; η_l as the proof has it, so that drift is not what is seen.
Clients that keep a state take σ_g out of the noise, so their grid is sized without it. FedDyn has no η_g: it averages,
at η_l = η_g/K and a = 1/η_g, which makes its step as long as the others'.
Of "averaging": η_g = η_l·K as in practice, over a grid of η_l (and of a), the same for every algorithm.
Of "proof": exactly the proof's.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from fedcm.algorithms import FedAvg, FedCM, FedDyn, Scaffold
from fedcm.core.algorithm import Algorithm
from fedcm.errors import UserError
from fedcm.theory.problems.saturating import Saturating
from fedcm.theory.rates.points import Case, Experiment, Point
from fedcm.theory.theorem.bounds import leading_noise
from fedcm.theory.theorem.proof_steps import client_lr, global_lr, recursion_constants, strongly_convex_global_lr
from fedcm.theory.theorem.walk import StepSizes

PROXIMAL = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)  # FedDyn's a of "averaging"
KEEP_STATE = ("scaffold", "feddyn")


class Grid(NamedTuple):
    """Several step sizes of one algorithm, walked side by side."""

    algorithm: Algorithm[Any, Any, Any, Any]
    sizes: StepSizes


class Candidate(NamedTuple):
    """One choice from an algorithm's grids."""

    algorithm: Algorithm[Any, Any, Any, Any]
    client_lr: float
    global_lr: float

    @property
    def proximal(self) -> float | None:
        """FedDyn's a."""
        return self.algorithm.alpha if isinstance(self.algorithm, FedDyn) else None

    @property
    def alone(self) -> Grid:
        return Grid(self.algorithm, StepSizes((self.client_lr,), (self.global_lr,)))


def grids(experiment: Experiment, point: Point, name: str) -> list[Grid]:
    if experiment.steps == "averaging":
        sizes = StepSizes.averaging(experiment.client_lrs, point.steps)
        return [Grid(algorithm, sizes) for algorithm in _algorithms(name, point, PROXIMAL)]
    if experiment.steps == "proof":
        middle, times = as_proven(point), (1.0,)
    else:
        middle, times = suited(experiment.case, point, name in KEEP_STATE), experiment.times
    smoothness = point.problem.constants.smoothness
    wide = sorted({min(time * middle, 1 / smoothness) for time in times})
    if name == "feddyn":
        return [Grid(FedDyn(1 / lr), StepSizes.averaging([lr / point.steps], point.steps)) for lr in wide]
    own = tuple(client_lr(lr, smoothness, point.steps, point.cohort) for lr in wide)
    return [Grid(algorithm, StepSizes(own, tuple(wide))) for algorithm in _algorithms(name, point, ())]


def _algorithms(name: str, point: Point, proximal: Sequence[float]) -> list[Algorithm[Any, Any, Any, Any]]:
    return {
        "fedcm": [FedCM(point.alpha)],
        "fedavg": [FedAvg()],
        "scaffold": [Scaffold()],
        "feddyn": [FedDyn(a) for a in proximal],
    }[name]


def flattened(several: Sequence[Grid]) -> list[Candidate]:
    """In the order in which they are walked."""
    return [
        Candidate(algorithm, own, wide)
        for algorithm, sizes in several
        for own, wide in zip(sizes.client_lr, sizes.global_lr, strict=True)
    ]


def edges(best: Candidate, all_of_them: Sequence[Candidate], longest: float | None) -> tuple[str, ...]:
    """Where the best lies at an edge of its grid, so that a better one may lie beyond; `longest` is 1/L if that is one.

    >>> grid = [Candidate(FedAvg(), 0.1, lr) for lr in (1.0, 2.0, 4.0)]
    >>> edges(grid[2], grid, longest=None)
    ('largest η',)
    """
    found = []
    if best.global_lr == longest:
        found.append("η = 1/L")
    else:
        found += _ends("η", best.global_lr, {other.global_lr for other in all_of_them})
    rivals = {other.proximal for other in all_of_them if other.global_lr == best.global_lr}
    if best.proximal is not None:
        found += _ends("a", best.proximal, {a for a in rivals if a is not None})
    return tuple(found)


def _ends(letter: str, value: float, grid: set[float]) -> list[str]:
    if len(grid) < 2:
        return []
    return [f"{word} {letter}" for word, end in (("smallest", min(grid)), ("largest", max(grid))) if value == end]


def suited(case: Case, point: Point, keeps_state: bool = False) -> float:
    """The lemma's η_g with the noise of the mean gradient in place of V."""
    problem = point.problem
    noise = leading_noise(point.setting(dissimilarity=0.0) if keeps_state else point.setting())
    if case == "strongly convex":
        return strongly_convex_global_lr(problem.constants.strong_convexity, point.distance, point.rounds, noise)
    if case == "general convex":
        return global_lr(point.distance, point.rounds, noise, 0.0)
    return global_lr(point.excess, point.rounds, problem.constants.smoothness * noise, 0.0)


def as_proven(point: Point) -> float:
    """η_g of the case that is not convex, with every constant of the proof."""
    problem = point.problem
    if not isinstance(problem, Saturating):
        raise UserError(
            "the proof's own step sizes need a problem whose gradient is bounded everywhere, got "
            f"{type(problem).__name__}; use Saturating"
        )
    first, second = recursion_constants(point.setting(problem.gradient_bound))
    smoothness = problem.constants.smoothness
    return global_lr(point.excess, point.rounds, smoothness * first, smoothness * second)
