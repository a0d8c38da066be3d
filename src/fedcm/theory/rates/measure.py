"""Measuring: every algorithm over the replicates of a point, at the step sizes that suit it best.

The best of a grid is chosen by some replicates and measured on others: so choosing does not flatter. All algorithms of
a point see the same cohorts and noise, those of another point see others.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedcm.algorithms import FedCM
from fedcm.errors import UserError, suggest
from fedcm.theory.problems.draws import Draws
from fedcm.theory.rates.plan import experiments
from fedcm.theory.rates.points import Case, Claim, Experiment, Point
from fedcm.theory.rates.slopes import Slope, Verdict, exponent, fit, judged
from fedcm.theory.rates.step_grids import Candidate, Grid, edges, flattened, grids, suited
from fedcm.theory.theorem.averages import WeightedAverage, auxiliary, decay, momentum_weight
from fedcm.theory.theorem.bounds import leading_noise
from fedcm.theory.theorem.walk import Walk


class Walked(NamedTuple):
    """One algorithm at B step sizes over R replicates."""

    errors: Tensor  # (B, R)
    steepest: Tensor | None  # of FedCM, (B,): the largest on the way of ‖∇f(x_t)‖, root mean square over replicates


class Found(NamedTuple):
    """One algorithm at one point."""

    errors: np.ndarray  # (replicates,) of the chosen step sizes
    chosen: Candidate
    edges: tuple[str, ...]  # where the chosen lies at an edge of its grid
    steepest: float | None = None  # of FedCM: G on the way


class Row(NamedTuple):
    """One algorithm's slope in one experiment."""

    experiment: Experiment
    algorithm: str
    found: list[Found]
    slope: Slope
    proven: Claim
    with_log: float | None  # the proven exponent with the logarithm of η_g in it, over the same points
    verdict: Verdict

    @property
    def errors(self) -> list[float]:
        return [float(one.errors.mean()) for one in self.found]

    @property
    def standard_errors(self) -> list[float]:
        with np.errstate(invalid="ignore"):  # of what diverged there is none
            return [float(one.errors.std(ddof=1)) / math.sqrt(len(one.errors)) for one in self.found]

    @property
    def between(self) -> list[float]:
        """The exponent from each point to the next: equal ones make a power law."""
        values, errors = self.experiment.values, self.errors
        return [exponent(values[k : k + 2], errors[k : k + 2]) for k in range(len(values) - 1)]


def chosen(names: Sequence[str], quick: bool) -> list[Experiment]:
    """The experiments with these names, or that begin with them where none has the name; all where none is given."""
    known = experiments()
    wanted = {e.name for name in names for e in _called(name, known)} if names else {e.name for e in known}
    kept = [e for e in known if e.name in wanted]
    return [e.shortened() for e in kept] if quick else kept


def _called(name: str, known: Sequence[Experiment]) -> list[Experiment]:
    if not name:
        raise UserError(
            "--only needs the name of an experiment or its beginning, got an empty one; leave it out for all"
        )
    found = [e for e in known if e.name == name] or [e for e in known if e.name.startswith(name)]
    if not found:
        raise UserError(f"there is no experiment {name!r}; {suggest(name, [e.name for e in known])}")
    return found


def cost(point: Point) -> float:
    """What a point costs, roughly: local steps."""
    return point.rounds * (point.steps + 2) * (3 if point.problem.dimension > 20 else 1)


def rows_of(experiment: Experiment, measured: Sequence[dict[str, Found]]) -> list[Row]:
    """An algorithm a row, of what `measure` found at every point."""
    made = []
    for name, proven in experiment.proven.items():
        found = [at_point[name] for at_point in measured]
        slope = fit(experiment.values, [one.errors for one in found])
        log = with_log(experiment) if isinstance(proven, float | int) else None
        made.append(Row(experiment, name, found, slope, proven, log, judged(slope, proven, log)))
    return made


def with_log(experiment: Experiment) -> float | None:
    """Strongly convex, the proof's noise term is c1·η_g, and η_g has a logarithm: its exponent over the same points."""
    if experiment.case != "strongly convex" or experiment.steps != "tuned" or experiment.varied == "1/α":
        return None  # where α varies, nothing in the term does
    noises = [leading_noise(point.setting()) for point in experiment.points]
    if not all(noises):
        return None
    terms = [noise * suited(experiment.case, point) for noise, point in zip(noises, experiment.points, strict=True)]
    return exponent(experiment.values, terms)


def measure(experiment: Experiment, number: int, seed: int = 0) -> dict[str, Found]:
    """Every algorithm of the experiment at its point of that number."""
    point, replicates = experiment.points[number], experiment.replicates
    several = {name: grids(experiment, point, name) for name in experiment.proven}

    def errors(own: Sequence[Grid], count: int, stream: int) -> Iterator[Walked]:
        draws = Draws(point.problem, point.cohort, point.steps, count, seed, stream)
        return iter(walked(experiment.case, point, own, draws))

    tried = errors([grid for own in several.values() for grid in own], replicates.chosen_by, 2 * number)
    best = {name: _best(own, [next(tried) for _ in own]) for name, own in several.items()}
    measured = errors([candidate.alone for candidate in best.values()], replicates.measured, 2 * number + 1)
    longest = 1 / point.problem.constants.smoothness if experiment.steps == "tuned" else None
    found = {}
    for name, candidate in best.items():
        one = next(measured)
        steepest = None if one.steepest is None else float(one.steepest[0])
        at = edges(candidate, flattened(several[name]), longest)
        found[name] = Found(_finite_or_infinite(one.errors[0]).numpy(), candidate, at, steepest)
    return found


def _best(own: Sequence[Grid], tried: Sequence[Walked]) -> Candidate:
    means = _finite_or_infinite(torch.cat([one.errors for one in tried])).mean(1)
    return flattened(own)[int(means.argmin())]


def _finite_or_infinite(errors: Tensor) -> Tensor:
    """What diverged so far that it is not a number is as bad as can be."""
    return errors.nan_to_num(nan=math.inf, posinf=math.inf)


def walked(case: Case, point: Point, several: Sequence[Grid], draws: Draws) -> list[Walked]:
    """The theorem's error of every grid: f(Σ w_t z_t) − f*, or the mean of ‖∇f(z_t)‖² if not convex."""
    problem, start = point.problem, point.start.expand(draws.replicates, -1)
    strong = problem.constants.strong_convexity if case == "strongly convex" else 0.0
    walks = [Walk(algorithm, problem, sizes, point.steps, start) for algorithm, sizes in several]
    before = [walk.server.params for walk in walks]
    averages = [WeightedAverage(torch.as_tensor(decay(strong, walk.sizes.column("global_lr", 2)))) for walk in walks]
    squares = [torch.zeros((), dtype=torch.float64) for _ in walks]
    steepest = [torch.zeros((), dtype=torch.float64) if isinstance(grid.algorithm, FedCM) else None for grid in several]
    for drawn in draws.rounds(point.rounds):
        for number, walk in enumerate(walks):
            now, largest = walk.server.params, steepest[number]
            z = auxiliary(now, before[number], momentum_weight(walk.algorithm))
            if case == "not convex":
                squares[number] = squares[number] + problem.gradient(z).square().sum(-1)
            else:
                averages[number].add(z)
            if largest is not None:
                steepest[number] = torch.maximum(largest, problem.gradient(now).square().sum(-1).mean(-1))
            before[number] = now
            walk.round(drawn)
    errors = [total / point.rounds for total in squares]
    if case != "not convex":
        errors = [problem.value(average.value) - problem.least for average in averages if average.value is not None]
    return [
        Walked(error, None if largest is None else largest.sqrt())
        for error, largest in zip(errors, steepest, strict=True)
    ]
