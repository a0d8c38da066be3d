"""The measured error is the theorem's, at the best step sizes of the grid, on replicates that did not choose them."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from second_moments import Moments

from fedcm.algorithms import FedAvg, FedCM, Scaffold
from fedcm.theory.problems.quadratics import Quadratics
from fedcm.theory.problems.sampling import RoundSampler
from fedcm.theory.rates import measurement
from fedcm.theory.rates.experiment import LABELS, Case, RateExperiment, RatePoint, ReplicateCounts
from fedcm.theory.rates.measurement import (
    SimulatedErrors,
    compute_log_exponent,
    make_rows,
    measure_point,
    simulate_errors,
)
from fedcm.theory.rates.plan import list_experiments
from fedcm.theory.rates.step_grids import StepGrid, list_candidates, make_grids
from fedcm.theory.theorem.simulation import StepSizes

PROBLEM = Quadratics(5, 3, 0.2, 1.0, noise=1.0, dissimilarity=1.0, spread=0.3)
POINT = RatePoint(7, PROBLEM, rounds=7, steps=2, cohort_size=2, alpha=0.3, offset=0.5)


def make_experiment(case: Case = "strongly convex", **changes: object) -> RateExperiment:
    experiment = RateExperiment(
        "made", case, "T", (POINT,), dict.fromkeys(LABELS, -1.0), replicates=ReplicateCounts(3, 4)
    )
    return replace(experiment, **changes)  # pyright: ignore[reportArgumentType]


def compute_errors_literally(
    case: Case, alpha: float, client_lr: float, global_lr: float, sampler: RoundSampler
) -> list[float]:
    """Run the paper's pseudocode with plain loops, one replicate at a time; α = 1 is FedAvg."""
    optimum, curvatures, slopes = PROBLEM.optimum.numpy(), PROBLEM.curvatures.numpy(), PROBLEM.slopes.numpy()
    eigenvalues = PROBLEM.eigenvalues.numpy()
    samples = list(sampler.sample_rounds(POINT.rounds))
    errors = []
    for replicate in range(sampler.replicates):
        x = before = optimum + 0.5
        momentum, auxiliaries = np.zeros(3), []
        for sample in samples:
            auxiliaries.append(x + (1 - alpha) / alpha * (x - before))
            directions = []
            for place, client in enumerate(sample.cohort[replicate].tolist()):
                own = x
                for k in range(POINT.steps):
                    assert sample.noise is not None
                    gradient = curvatures[client] * (own - optimum) + slopes[client]
                    gradient = gradient + sample.noise[k, replicate, place].numpy()
                    own = own - client_lr * (alpha * gradient + (1 - alpha) * momentum)
                directions.append((x - own) / (client_lr * POINT.steps))
            momentum, before = np.mean(directions, axis=0), x
            x = x - global_lr * momentum
        if case == "not convex":
            errors.append(float(np.mean([np.square(eigenvalues * (z - optimum)).sum() for z in auxiliaries])))
            continue
        q = 1 - 0.2 * global_lr / 2 if case == "strongly convex" else 1.0
        weights = np.array([q ** (-t - 1) for t in range(POINT.rounds)])
        mean = np.einsum("t,td->d", weights / weights.sum(), np.stack(auxiliaries))
        errors.append(float(0.5 * (eigenvalues * np.square(mean - optimum)).sum()))
    return errors


@pytest.mark.parametrize("case", ["strongly convex", "general convex", "not convex"])
def test_error_matches_a_literal_loop(case: Case) -> None:
    sampler = RoundSampler(PROBLEM, 2, 2, 3, seed=4)
    sizes = StepSizes((0.05, 0.2), (0.3, 0.9))
    fedcm, fedavg = simulate_errors(case, POINT, [StepGrid(FedCM(0.3), sizes), StepGrid(FedAvg(), sizes)], sampler)
    for number, (own, wide) in enumerate(zip(sizes.client_lr, sizes.global_lr, strict=True)):
        assert fedcm.errors[number].tolist() == pytest.approx(
            compute_errors_literally(case, 0.3, own, wide, sampler), rel=1e-10
        )
        assert fedavg.errors[number].tolist() == pytest.approx(
            compute_errors_literally(case, 1.0, own, wide, sampler), rel=1e-10
        )


def test_largest_gradient_is_the_maximum_along_the_run() -> None:
    """Steps of 0, steps that come nearer to the optimum, and steps that are too long."""
    sizes = StepSizes((0.05, 0.05, 0.2), (1e-9, 0.3, 50.0))
    grids = [StepGrid(FedCM(0.3), sizes), StepGrid(FedAvg(), sizes)]
    still = replace(POINT, problem=replace(PROBLEM, noise=0.0, dissimilarity=0.0))
    simulated = simulate_errors("not convex", still, grids, RoundSampler(still.problem, 2, 2, 3))
    start = float(PROBLEM.gradient(POINT.start).norm())
    assert simulated[0].largest_gradient is not None
    assert simulated[0].largest_gradient[:2].tolist() == pytest.approx([start, start], rel=1e-6)
    assert float(simulated[0].largest_gradient[2]) > 1.1 * start
    assert simulated[1].largest_gradient is None


def test_mean_of_measured_errors_matches_the_exact_expectation() -> None:
    """‖∇f(z_t)‖² over the rounds, within five standard errors, at the step sizes that are reported as best."""
    experiment = make_experiment("not convex", replicates=ReplicateCounts(50, 2000), proven={"fedcm": -0.5})
    result = measure_point(experiment, 0)["fedcm"]
    moments = Moments(PROBLEM, 2, 2, 0.3, result.best.client_lr, result.best.global_lr)
    now, total = moments.start(POINT.start), 0.0
    for _ in range(POINT.rounds):
        total += moments.squared_gradient_at_z(now)
        now = moments.advance(now)
    error = float(result.errors.std()) / math.sqrt(2000)
    assert abs(float(result.errors.mean()) - total / POINT.rounds) <= 5 * error
    assert error < 0.05 * total / POINT.rounds


def test_best_step_sizes_have_the_least_mean_and_are_measured_on_other_replicates() -> None:
    """At point 1, so that the streams depend on the point."""
    experiment = make_experiment(points=(POINT, POINT))
    results = measure_point(experiment, 1, seed=2)
    for name in LABELS:
        own = make_grids(experiment, POINT, name)
        tried = simulate_errors(experiment.case, POINT, own, RoundSampler(PROBLEM, 2, 2, 3, seed=2, stream=2))
        means = torch.cat([one.errors for one in tried]).mean(1)
        assert len(set(means.tolist())) == len(means) > 2
        best = list_candidates(own)[min(range(len(means)), key=lambda k: float(means[k]))]
        assert results[name].best == best
        (alone,) = simulate_errors(
            experiment.case, POINT, [best.as_grid()], RoundSampler(PROBLEM, 2, 2, 4, seed=2, stream=3)
        )
        assert results[name].errors.tolist() == alone.errors[0].tolist()


def test_tuning_and_measurement_use_different_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of four candidates is the best; candidates with NaN or infinite errors are never chosen."""
    calls = []

    def fake_simulate(
        case: Case, point: RatePoint, grids: Sequence[StepGrid], sampler: RoundSampler
    ) -> list[SimulatedErrors]:
        (grid,) = grids
        calls.append((grid.sizes.global_lr, sampler.replicates, sampler.stream))
        errors = torch.tensor([[7.0, 7.0, 7.0], [6.0, 7.0, 6.0], [math.nan, 1.0, 1.0], [1.0, math.inf, 1.0]])
        return [SimulatedErrors(errors if len(calls) == 1 else torch.full((1, 4), 9.0), None)]

    monkeypatch.setattr(measurement, "simulate_errors", fake_simulate)
    experiment = make_experiment(proven={"fedavg": -1.0}, times=(0.1, 0.2, 0.3, 0.4))
    result = measure_point(experiment, 0)["fedavg"]
    assert result.errors.tolist() == [9, 9, 9, 9]
    assert result.best == list_candidates(make_grids(experiment, POINT, "fedavg"))[1]
    (tried, few, first), (chosen, many, second) = calls
    assert chosen == tried[1:2]
    assert (few, many) == (3, 4)
    assert first != second


def test_diverged_replicates_stay_infinite(monkeypatch: pytest.MonkeyPatch) -> None:
    def fake_diverged(
        case: Case, point: RatePoint, grids: Sequence[StepGrid], sampler: RoundSampler
    ) -> list[SimulatedErrors]:
        sizes = (len(grids[0].sizes.global_lr), sampler.replicates)
        return [
            SimulatedErrors(torch.ones(sizes, dtype=torch.float64).index_fill(1, torch.tensor([2]), math.inf), None)
        ]

    monkeypatch.setattr(measurement, "simulate_errors", fake_diverged)
    experiment = make_experiment(proven={"fedavg": -1.0}, points=(POINT, replace(POINT, value=14)))
    (row,) = make_rows(experiment, [measure_point(experiment, number) for number in range(2)])
    assert row.errors == [math.inf, math.inf]
    assert row.verdict == "diverged"


def test_log_exponent_matches_hand_calculation() -> None:
    """σ_l² = 9, KS = 20 and 40, N = 100: v = 9/20 and 9/40; m = μ/2 = 0.05, D = 10, T = 1000; η = log(m²DT/v)/(mT)."""
    problem = Quadratics(100, 10, 0.1, 1.0, noise=3.0)
    points = tuple(RatePoint(k, problem, rounds=1000, steps=k) for k in (2, 4))
    terms = [9 / (10 * k) * math.log(0.05**2 * 10 * 1000 / (9 / (10 * k))) / 50 for k in (2, 4)]
    expected = math.log(terms[1] / terms[0]) / math.log(2)
    assert compute_log_exponent(make_experiment(points=points, varied="K")) == pytest.approx(expected)
    assert -0.9 < expected < -0.7
    assert compute_log_exponent(make_experiment("general convex", points=points)) is None
    assert compute_log_exponent(make_experiment(points=points, varied="1/α")) is None


def test_results_depend_on_seed_and_point_only() -> None:
    def errors(seed: int, number: int = 0) -> list[float]:
        return [
            x
            for result in measure_point(make_experiment(points=(POINT, POINT)), number, seed).values()
            for x in result.errors
        ]

    assert errors(0) == errors(0)
    assert errors(0) != errors(1)
    assert not set(errors(0)) & set(errors(0, number=1))  # points are independent


def test_fedavg_and_scaffold_agree_for_equal_clients_without_noise() -> None:
    point = RatePoint(1, Quadratics(4, 3, 0.1, 1.0), rounds=20, steps=3, cohort_size=4)
    results = measure_point(make_experiment(points=(point,)), 0)
    assert results["fedavg"].errors == pytest.approx(results["scaffold"].errors, rel=1e-9)
    assert results["fedavg"].errors != pytest.approx(results["fedcm"].errors, rel=1e-3)


def test_algorithms_of_a_point_see_the_same_samples() -> None:
    """SCAFFOLD's control variates start at 0, so its first round is FedAvg's."""
    point, sizes = replace(POINT, rounds=2, steps=1), StepSizes((0.1,), (0.1,))
    fedavg, scaffold = simulate_errors(
        "general convex",
        point,
        [StepGrid(FedAvg(), sizes), StepGrid(Scaffold(), sizes)],
        RoundSampler(PROBLEM, 2, 1, 3),
    )
    assert torch.equal(fedavg.errors, scaffold.errors)


def test_client_experiments_vary_only_the_number_of_clients() -> None:
    experiments = [e for e in list_experiments() if e.varied == "N"]
    assert experiments
    for experiment in experiments:
        assert [point.problem.clients for point in experiment.points] == [100, 1000, 10000]
        assert {point.cohort_size for point in experiment.points} == {10}
        assert len({(p.make_setting().constants, p.rounds, p.steps, p.alpha) for p in experiment.points}) == 1
        assert set(experiment.proven) == set(LABELS)
