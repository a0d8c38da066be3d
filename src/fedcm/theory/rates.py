"""Measuring: every algorithm over the replicates of a point, at the step sizes that suit it best.

Step sizes of "tuned": η_g as the proof's lemma has it, with the noise of the mean gradient for its c1 (V would be tens
of times larger, for G² is in it), times ½, 1, 2 and 4, never beyond 1/L; η_l as the proof has it, so that drift is not
what is seen. FedDyn has no η_g: it averages, at η_l = η_g/K and a = 1/η_g, which makes its step as long as the others'.
Of "averaging": η_g = η_l·K as in practice, over a grid of η_l (and of a), the same for every algorithm.

The best of a grid is chosen by the first replicates alone and measured on the others: so choosing does not flatter.
All algorithms of a point see the same cohorts and noise.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from fedcm.algorithm import Algorithm
from fedcm.algorithms import FedAvg, FedCM, FedDyn, Scaffold
from fedcm.refusal import Refused, nearest
from fedcm.theory.averages import WeightedAverage, auxiliary, decay, momentum_weight
from fedcm.theory.bounds import Setting, leading_noise
from fedcm.theory.draws import Draws
from fedcm.theory.plan import Case, Claim, Experiment, Point, Replicates, experiments
from fedcm.theory.proof_steps import client_lr, global_lr, recursion_constants, strongly_convex_global_lr
from fedcm.theory.saturating import Saturating
from fedcm.theory.slopes import Slope, Verdict, fit, judged
from fedcm.theory.walk import StepSizes, Walk

TIMES = (0.5, 1.0, 2.0, 4.0)  # the grid around the lemma's η_g
CLIENT_LRS = (0.00125, 0.0025, 0.005, 0.01, 0.02, 0.04)  # the grid of "averaging"
PROXIMAL = (0.3, 1.0, 3.0, 10.0)  # FedDyn's a there

Candidate = tuple[Algorithm[Any, Any, Any, Any], StepSizes]


class Found(NamedTuple):
    """One algorithm at one point."""

    errors: np.ndarray  # (replicates,) of the chosen step sizes
    client_lr: float
    global_lr: float
    at_the_edge: bool  # the chosen is the smallest or the largest of its grid


class Row(NamedTuple):
    """One algorithm's slope in one experiment."""

    experiment: Experiment
    algorithm: str
    found: list[Found]
    slope: Slope
    proven: Claim
    with_log: float | None  # the proven exponent with the logarithm of η_g in it, over the same points
    verdict: Verdict


def chosen(names: Sequence[str], quick: bool) -> list[Experiment]:
    """The experiments with these names, or that begin with them; all where none is given."""
    known = experiments()
    for name in names:
        if not any(e.name.startswith(name) for e in known):
            raise Refused(f"there is no experiment {name!r}; {nearest(name, [e.name for e in known])}")
    kept = [e for e in known if not names or any(e.name.startswith(name) for name in names)]
    return [e.shortened() for e in kept] if quick else kept


def cost(point: Point) -> float:
    """What a point costs, roughly: local steps."""
    return point.rounds * (point.steps + 2) * (3 if point.problem.dimension > 20 else 1)


@final
class Measurement:
    """An experiment point by point: iterate, then `rows`."""

    def __init__(self, experiment: Experiment, seed: int = 0) -> None:
        self.experiment, self.seed = experiment, seed
        self._found: dict[str, list[Found]] = {name: [] for name in experiment.proven}

    def __iter__(self) -> Iterator[Point]:
        for number, point in enumerate(self.experiment.points):
            seed = self.seed * 1000 + number
            for name, found in measure(self.experiment, point, self.experiment.replicates, seed).items():
                self._found[name].append(found)
            yield point

    def rows(self) -> list[Row]:
        values = [point.value for point in self.experiment.points]
        made = []
        for name, proven in self.experiment.proven.items():
            found = self._found[name]
            slope = fit(values, [one.errors for one in found])
            with_log = _with_log(self.experiment) if isinstance(proven, float | int) else None
            verdict = judged(slope, proven, with_log)
            made.append(Row(self.experiment, name, found, slope, proven, with_log, verdict))
        return made


def _with_log(experiment: Experiment) -> float | None:
    """Strongly convex, the proof's noise term is c1·η_g, and η_g has a logarithm: its exponent over the same points."""
    if experiment.case != "strongly convex" or experiment.steps != "tuned" or experiment.varied == "1/α":
        return None  # where α varies, nothing in the term does
    noises = [leading_noise(setting_of(point)) for point in experiment.points]
    if not all(noises):
        return None
    terms = [noise * _suited(experiment.case, point) for noise, point in zip(noises, experiment.points, strict=True)]
    return fit([point.value for point in experiment.points], [np.array([term]) for term in terms]).value


def measure(experiment: Experiment, point: Point, replicates: Replicates, seed: int) -> dict[str, Found]:
    candidates = {name: _candidates(experiment, point, name) for name in experiment.proven}
    flat = [candidate for several in candidates.values() for candidate in several]
    errors = iter(walked(experiment.case, point, flat, sum(replicates), seed))
    found = {}
    for name, several in candidates.items():
        tried = torch.cat([next(errors) for _ in several]).nan_to_num(nan=math.inf)  # (all of the grid, R)
        best = int(tried[:, : replicates.chosen_by].mean(1).argmin())
        sizes = [pair for _, s in several for pair in zip(s.client_lr, s.global_lr, strict=True)]
        edge = sizes[best][1] in (min(g for _, g in sizes), max(g for _, g in sizes)) and len(sizes) > 1
        found[name] = Found(tried[best, replicates.chosen_by :].numpy(), *sizes[best], edge)
    return found


def walked(case: Case, point: Point, candidates: Sequence[Candidate], replicates: int, seed: int) -> list[Tensor]:
    """The theorem's error of each candidate, (B, R): f(Σ w_t z_t) − f*, or the mean of ‖∇f(z_t)‖² if not convex."""
    problem = point.problem
    start = initial(point).expand(replicates, -1)
    strong = problem.constants.strong_convexity if case == "strongly convex" else 0.0
    walks = [Walk(algorithm, problem, sizes, point.steps, start) for algorithm, sizes in candidates]
    alphas = [momentum_weight(algorithm) for algorithm, _ in candidates]
    before = [walk.server.params for walk in walks]
    averages = [WeightedAverage(torch.as_tensor(decay(strong, walk.sizes.column("global_lr", 2)))) for walk in walks]
    squares = [torch.zeros(()) for _ in walks]
    for draws in Draws(problem, point.cohort, point.steps, replicates, seed).rounds(point.rounds):
        for number, walk in enumerate(walks):
            now = walk.server.params
            z = auxiliary(now, before[number], alphas[number])
            if case == "not convex":
                squares[number] = squares[number] + problem.gradient(z).square().sum(-1)
            else:
                averages[number].add(z)
            before[number] = now
            walk.round(draws)
    if case == "not convex":
        return [total / point.rounds for total in squares]
    return [problem.value(average.value) - problem.least for average in averages if average.value is not None]


def initial(point: Point) -> Tensor:
    if point.offset is None:
        return torch.zeros_like(point.problem.optimum)
    return point.problem.optimum + point.offset


def _candidates(experiment: Experiment, point: Point, name: str) -> list[Candidate]:
    if experiment.steps == "averaging":
        sizes = StepSizes.averaging(CLIENT_LRS, point.steps)
        return [(algorithm, sizes) for algorithm in _algorithms(name, point, PROXIMAL)]
    if experiment.steps == "proof":
        middle, times = _as_proven(point), (1.0,)
    else:
        middle, times = _suited(experiment.case, point), TIMES
    longest = 1 / point.problem.constants.smoothness
    wide = sorted({min(time * middle, longest) for time in times})
    if name == "feddyn":
        return [(FedDyn(1 / lr), StepSizes.averaging([lr / point.steps], point.steps)) for lr in wide]
    smoothness = point.problem.constants.smoothness
    own = tuple(client_lr(lr, smoothness, point.steps, point.cohort) for lr in wide)
    return [(algorithm, StepSizes(own, tuple(wide))) for algorithm in _algorithms(name, point, ())]


def _algorithms(name: str, point: Point, proximal: Sequence[float]) -> list[Algorithm[Any, Any, Any, Any]]:
    return {
        "fedcm": [FedCM(point.alpha)],
        "fedavg": [FedAvg()],
        "scaffold": [Scaffold()],
        "feddyn": [FedDyn(a) for a in proximal],
    }[name]


def setting_of(point: Point, gradient_bound: float = 0.0) -> Setting:
    problem = point.problem
    return Setting(problem.constants, gradient_bound, problem.clients, point.cohort, point.steps, point.alpha)


def _suited(case: Case, point: Point) -> float:
    """The lemma's η_g with the noise of the mean gradient in place of V."""
    noise, start, problem = leading_noise(setting_of(point)), initial(point), point.problem
    distance = float((start - problem.optimum).square().sum())
    if case == "strongly convex":
        return strongly_convex_global_lr(problem.constants.strong_convexity, distance, point.rounds, noise)
    if case == "general convex":
        return global_lr(distance, point.rounds, noise, 0.0)
    excess = float(problem.value(start)) - problem.least
    return global_lr(excess, point.rounds, problem.constants.smoothness * noise, 0.0)


def _as_proven(point: Point) -> float:
    """η_g of the case that is not convex, with every constant of the proof."""
    problem = point.problem
    if not isinstance(problem, Saturating):
        raise Refused("the proof's own step sizes need a problem whose gradient is bounded everywhere")
    first, second = recursion_constants(setting_of(point, problem.gradient_bound))
    smoothness, excess = problem.constants.smoothness, float(problem.value(initial(point))) - problem.least
    return global_lr(excess, point.rounds, smoothness * first, smoothness * second)
