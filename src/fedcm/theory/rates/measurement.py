"""Measure every algorithm at a point, over its replicates, at the best step sizes of its grid.

Some replicates choose the best step sizes and others measure them, so the choice does not bias the result. All
algorithms of a point see the same cohorts and noise; points are independent of each other.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedcm.algorithms import FedCM
from fedcm.theory.problems.sampling import RoundSampler
from fedcm.theory.rates.experiment import Case, Claim, RateExperiment, RatePoint
from fedcm.theory.rates.slopes import Slope, Verdict, fit_exponent, fit_slope, judge
from fedcm.theory.rates.step_grids import (
    StepCandidate,
    StepGrid,
    estimate_global_lr,
    find_edges,
    list_candidates,
    make_grids,
)
from fedcm.theory.theorem.averages import WeightedAverage, compute_decay, compute_z, get_momentum_weight
from fedcm.theory.theorem.bounds import compute_leading_noise
from fedcm.theory.theorem.simulation import Simulation


class SimulatedErrors(NamedTuple):
    """One algorithm at B pairs of step sizes over R replicates."""

    errors: Tensor  # (B, R)
    largest_gradient: Tensor | None  # only for FedCM, (B,): max over t of ‖∇f(x_t)‖, root mean square over replicates


class PointResult(NamedTuple):
    """One algorithm at one point."""

    errors: np.ndarray  # (replicates,) at the best step sizes
    best: StepCandidate
    edges: tuple[str, ...]  # where the best is at an edge of its grid
    largest_gradient: float | None = None  # only for FedCM: G along the run


class RateRow(NamedTuple):
    """One algorithm's slope in one experiment."""

    experiment: RateExperiment
    algorithm: str
    results: list[PointResult]
    slope: Slope
    proven: Claim
    log_exponent: float | None  # the proven exponent with the logarithm of η_g, over the same points
    verdict: Verdict

    @property
    def errors(self) -> list[float]:
        """The mean error at every point."""
        return [float(result.errors.mean()) for result in self.results]

    @property
    def standard_errors(self) -> list[float]:
        """The standard error of every mean."""
        with np.errstate(invalid="ignore"):  # diverged runs have none
            return [float(result.errors.std(ddof=1)) / math.sqrt(len(result.errors)) for result in self.results]

    @property
    def slopes_between(self) -> list[float]:
        """The exponent from each point to the next; in a power law all are equal."""
        values, errors = self.experiment.values, self.errors
        return [fit_exponent(values[k : k + 2], errors[k : k + 2]) for k in range(len(values) - 1)]


def estimate_cost(point: RatePoint) -> float:
    """Estimate the work of measuring a point, in local steps."""
    return point.rounds * (point.steps + 2) * (3 if point.problem.dimension > 20 else 1)


def make_rows(experiment: RateExperiment, point_results: Sequence[dict[str, PointResult]]) -> list[RateRow]:
    """Make one row per algorithm from the results of `measure_point` at every point."""
    rows = []
    for name, proven in experiment.proven.items():
        results = [by_algorithm[name] for by_algorithm in point_results]
        slope = fit_slope(experiment.values, [result.errors for result in results])
        log = compute_log_exponent(experiment) if isinstance(proven, float | int) else None
        rows.append(RateRow(experiment, name, results, slope, proven, log, judge(slope, proven, log)))
    return rows


def compute_log_exponent(experiment: RateExperiment) -> float | None:
    """Return the exponent of the proof's noise term c1·η_g over the experiment's points.

    In the strongly convex case η_g contains a logarithm, which changes the exponent. Returns None in other cases.
    """
    if experiment.case != "strongly convex" or experiment.steps != "tuned" or experiment.varied == "1/α":
        return None  # the term does not depend on α
    noises = [compute_leading_noise(point.make_setting()) for point in experiment.points]
    if not all(noises):
        return None
    global_lrs = [estimate_global_lr(experiment.case, point) for point in experiment.points]
    return fit_exponent(experiment.values, [noise * lr for noise, lr in zip(noises, global_lrs, strict=True)])


def measure_point(experiment: RateExperiment, number: int, seed: int = 0) -> dict[str, PointResult]:
    """Measure every algorithm of the experiment at `experiment.points[number]`."""
    point, replicates = experiment.points[number], experiment.replicates
    grids = {name: make_grids(experiment, point, name) for name in experiment.proven}

    def simulate(chosen: Sequence[StepGrid], count: int, stream: int) -> Iterator[SimulatedErrors]:
        sampler = RoundSampler(point.problem, point.cohort_size, point.steps, count, seed, stream)
        return iter(simulate_errors(experiment.case, point, chosen, sampler))

    trials = simulate([grid for own in grids.values() for grid in own], replicates.tuning, 2 * number)
    best = {name: _choose_best(own, [next(trials) for _ in own]) for name, own in grids.items()}
    measured = simulate([candidate.as_grid() for candidate in best.values()], replicates.measurement, 2 * number + 1)
    longest = 1 / point.problem.constants.smoothness if experiment.steps == "tuned" else None
    results = {}
    for name, candidate in best.items():
        simulated = next(measured)
        largest = None if simulated.largest_gradient is None else float(simulated.largest_gradient[0])
        edges = find_edges(candidate, list_candidates(grids[name]), longest)
        results[name] = PointResult(_nan_to_infinity(simulated.errors[0]).numpy(), candidate, edges, largest)
    return results


def _choose_best(grids: Sequence[StepGrid], trials: Sequence[SimulatedErrors]) -> StepCandidate:
    means = _nan_to_infinity(torch.cat([simulated.errors for simulated in trials])).mean(1)
    return list_candidates(grids)[int(means.argmin())]


def _nan_to_infinity(errors: Tensor) -> Tensor:
    """Count a run that diverged to NaN as infinitely bad."""
    return errors.nan_to_num(nan=math.inf, posinf=math.inf)


def simulate_errors(
    case: Case, point: RatePoint, grids: Sequence[StepGrid], sampler: RoundSampler
) -> list[SimulatedErrors]:
    """Simulate all grids on the same samples and return the theorem's error of each.

    The error is f(Σ w_t z_t) − f*, or the mean of ‖∇f(z_t)‖² if f is not convex.
    """
    problem, start = point.problem, point.start.expand(sampler.replicates, -1)
    strong = problem.constants.strong_convexity if case == "strongly convex" else 0.0
    simulations = [Simulation(algorithm, problem, sizes, point.steps, start) for algorithm, sizes in grids]
    before = [simulation.server.params for simulation in simulations]
    decays = [compute_decay(strong, simulation.sizes.as_column("global_lr", 2)) for simulation in simulations]
    averages = [WeightedAverage(torch.as_tensor(decay)) for decay in decays]
    zero = torch.zeros((), dtype=torch.float64)
    squares = [zero for _ in simulations]
    largest_squares = [zero if isinstance(grid.algorithm, FedCM) else None for grid in grids]
    for sample in sampler.sample_rounds(point.rounds):
        for number, simulation in enumerate(simulations):
            now, largest = simulation.server.params, largest_squares[number]
            z = compute_z(now, before[number], get_momentum_weight(simulation.algorithm))
            if case == "not convex":
                squares[number] = squares[number] + problem.gradient(z).square().sum(-1)
            else:
                averages[number].add(z)
            if largest is not None:
                largest_squares[number] = torch.maximum(largest, problem.gradient(now).square().sum(-1).mean(-1))
            before[number] = now
            simulation.run_round(sample)
    errors = [total / point.rounds for total in squares]
    if case != "not convex":
        errors = [problem.value(average.value) - problem.minimum for average in averages if average.value is not None]
    return [
        SimulatedErrors(error, None if largest is None else largest.sqrt())
        for error, largest in zip(errors, largest_squares, strict=True)
    ]
