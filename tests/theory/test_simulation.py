"""The simulation agrees with the round loop, its samples have the stated distribution, its means are exact."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from random_problems import random_quadratics
from second_moments import Moments
from torch import Tensor, nn

from fedcm.algorithms import FedAvg, FedCM, FedDyn, Scaffold
from fedcm.core.algorithm import Algorithm
from fedcm.core.participation import FixedSize
from fedcm.core.problem import Problem
from fedcm.core.round_loop import TrainingPlan, run_rounds
from fedcm.core.schedule import Schedule
from fedcm.data.batches import LocalWork
from fedcm.data.dataset import Dataset, Examples
from fedcm.data.federated import ArrayData
from fedcm.errors import UserError
from fedcm.executors.client_runner import ClientRunner
from fedcm.executors.local import LocalExecutor
from fedcm.theory.problems.losses import SQUARES
from fedcm.theory.problems.quadratics import Quadratics
from fedcm.theory.problems.regression import Regression
from fedcm.theory.problems.sampling import RoundSample, RoundSampler, sample_without_replacement
from fedcm.theory.theorem.averages import WeightedAverage, compute_decay, compute_weights, compute_z
from fedcm.theory.theorem.simulation import Simulation, StepSizes

ALGORITHMS = [FedCM(0.2), FedAvg(), Scaffold("I"), Scaffold("II"), FedDyn(0.5)]


def half_squared_error(outputs: Tensor, labels: Tensor) -> Tensor:
    return 0.5 * nn.functional.mse_loss(outputs.reshape(labels.shape), labels)


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=str)
@pytest.mark.parametrize("server_lr", [1.0, 0.7])
def test_it_agrees_with_the_round_loop(algorithm: Algorithm[Any, Any, Any, Any], server_lr: float) -> None:
    """Ridge regression with full batches, once through a torch model and the SGD loop, once through the simulation."""
    clients, each, size, steps, rounds, seed, client_lr = 5, 8, 3, 4, 15, 3, 0.1
    draw = np.random.default_rng(0)
    features = torch.from_numpy(draw.normal(size=(clients, each, size)))
    targets = torch.from_numpy(draw.normal(size=(clients, each)))
    dataset = Dataset("made", Examples(features.reshape(-1, size), targets.reshape(-1)), None, None)
    data = ArrayData(dataset, np.split(np.arange(clients * each), clients), torch.float64)
    problem = Problem(nn.Linear(size, 1, bias=False).double(), half_squared_error, weight_decay=0.05)
    executor = LocalExecutor(ClientRunner(algorithm, problem, data, LocalWork(each, steps=steps), seed=seed))
    start = torch.from_numpy(draw.normal(size=size))
    plan = TrainingPlan(rounds, clients, FixedSize(2), Schedule(client_lr, server_lr=server_lr), seed=seed)

    sizes = StepSizes((client_lr,), (server_lr * client_lr * steps,))
    simulation = Simulation(algorithm, Regression(SQUARES, features, targets, 0.05), sizes, steps, start[None])
    for done in run_rounds(algorithm, executor, plan, algorithm.init_server(start)):
        simulation.run_round(RoundSample(torch.from_numpy(FixedSize(2).cohort(clients, seed, done.index))[None], None))
        for name, field in done.server._asdict().items():
            assert float((getattr(simulation.server, name)[0, 0] - field).abs().max()) <= 1e-12, (name, done.index)
    assert float((simulation.server.params - start).abs().max()) > 0.1


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=str)
def test_step_sizes_side_by_side_match_each_alone(algorithm: Algorithm[Any, Any, Any, Any]) -> None:
    problem = Quadratics(6, 3, 0.2, 1.0, noise=1.0, dissimilarity=1.0, spread=0.3)
    start = torch.ones(4, 3, dtype=torch.float64)

    def run(sizes: StepSizes) -> Tensor:
        simulation = Simulation(algorithm, problem, sizes, 3, start)
        for draws in RoundSampler(problem, 2, 3, 4, seed=5).sample_rounds(20):
            simulation.run_round(draws)
        return simulation.server.params

    together = run(StepSizes((0.05, 0.1), (0.2, 0.3)))
    alone = [run(StepSizes((a,), (b,)))[0] for a, b in ((0.05, 0.2), (0.1, 0.3))]
    assert torch.allclose(together, torch.stack(alone), rtol=0, atol=1e-13)
    assert not torch.allclose(alone[0], alone[1], rtol=0, atol=1e-3)


def test_means_over_replicates_match_exact_expectations() -> None:
    """Within five standard errors: a correct simulation fails with probability 6e-7 per quantity, 2e-5 in total."""
    replicates, rounds = 4000, 12
    for number in range(3):
        draw = np.random.default_rng([7, number])
        known = random_quadratics(draw, noise=2.0)
        moments = Moments(known, 3, 2, 0.3, 0.2 / known.smoothness, 0.5 / known.smoothness)
        start = known.optimum + 0.5
        sizes = StepSizes((moments.client_lr,), (moments.global_lr,))
        simulation = Simulation(FedCM(0.3), known, sizes, 3, start.expand(replicates, -1))
        exact, before = moments.start(start), simulation.server.params
        for t, draws in enumerate(RoundSampler(known, 2, 3, replicates, seed=number).sample_rounds(rounds)):
            z = compute_z(simulation.server.params, before, 0.3)
            momentum = simulation.server.momentum.square().sum(-1)
            if t in (3, rounds - 1):
                for measured, expected in (
                    (known.value(z), moments.excess(exact)),
                    (momentum, moments.momentum(exact)),
                    (known.gradient(simulation.server.params).square().sum(-1), moments.squared_gradient(exact)),
                ):
                    error = float(measured.std()) / math.sqrt(replicates)
                    assert abs(float(measured.mean()) - expected) <= 5 * error, (number, t)
                    assert error < 0.1 * expected  # otherwise the check above is weak
            before = simulation.server.params
            simulation.run_round(draws)
            exact = moments.advance(exact)


def test_noise_has_exactly_the_stated_variance() -> None:
    """‖noise‖²·d/σ_l² is χ² with d degrees of freedom; the mean is within five standard errors."""
    problem = Quadratics(10, 7, 0.1, 1.0, noise=2.5)
    noises = [d.noise for d in RoundSampler(problem, 10, 4, 50, seed=1).sample_rounds(40)]
    squares = torch.stack([n for n in noises if n is not None]).square().sum(-1)
    error = 2.5**2 * math.sqrt(2 / 7 / squares.numel())
    assert abs(float(squares.mean()) - 2.5**2) <= 5 * error
    assert error < 0.01 * 2.5**2


def test_every_cohort_is_equally_likely() -> None:
    drawn = sample_without_replacement(np.random.default_rng(0), 5, 3, (20000,))
    assert all(len(set(cohort)) == 3 for cohort in drawn[:500].tolist())
    _, counts = np.unique(np.sort(drawn, axis=1), axis=0, return_counts=True)
    assert len(counts) == 10
    assert ((counts - 2000) ** 2 / 2000).sum() < 40  # χ² with 9 degrees exceeds it once in 10⁵


def sample(rounds: int, seed: int = 1, stream: int = 0) -> list[tuple[Tensor, Tensor]]:
    sampler = RoundSampler(Quadratics(20, 3, 0.1, 1.0, noise=1.0), 4, 2, 3, seed, stream)
    return [(each.cohort, each.noise) for each in sampler.sample_rounds(rounds) if each.noise is not None]


@pytest.mark.parametrize("rounds", [1, 16, 20, 32])
def test_a_sample_does_not_depend_on_the_number_of_rounds(rounds: int) -> None:
    few, many = sample(rounds), sample(40)
    assert len(few) == rounds
    for first, second in zip(few, many, strict=False):
        assert torch.equal(first[0], second[0])
        assert torch.equal(first[1], second[1])


@pytest.mark.parametrize("other", [{"seed": 2}, {"stream": 1}], ids=str)
def test_another_seed_or_stream_samples_differently(other: dict[str, int]) -> None:
    pairs = list(zip(sample(20), sample(20, **other), strict=True))
    assert not any(torch.equal(first[1], second[1]) for first, second in pairs)
    assert not all(torch.equal(first[0], second[0]) for first, second in pairs)


@pytest.mark.parametrize(("cohort_size", "steps"), [(0, 1), (21, 1), (4, 0)])
def test_impossible_sampler_raises(cohort_size: int, steps: int) -> None:
    with pytest.raises(UserError, match="must"):
        RoundSampler(Quadratics(20, 3, 0.1, 1.0), cohort_size, steps, 3)


def test_running_average_has_the_theorems_weights() -> None:
    points = torch.from_numpy(np.random.default_rng(0).normal(size=(50, 2, 3, 4)))
    q = compute_decay(0.1, torch.tensor([0.5, 3.0], dtype=torch.float64).reshape(2, 1, 1))
    average = WeightedAverage(torch.as_tensor(q))
    for point in points:
        average.add(point)
    for row, each in enumerate((0.975, 0.85)):
        literal = torch.tensor([each ** (-t - 1) for t in range(50)], dtype=torch.float64)
        literal /= literal.sum()
        assert torch.allclose(compute_weights(50, each), literal, rtol=1e-12)
        expected = torch.einsum("t,trd->rd", literal, points[:, row])
        assert average.value is not None
        assert torch.allclose(average.value[row], expected, rtol=0, atol=1e-13)
