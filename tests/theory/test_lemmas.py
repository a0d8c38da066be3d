"""The appendix's inequalities and identities hold on hundreds of random problems, and their mutants fail.

Expectations over cohorts are exact, since all cohorts are enumerated. G and σ_g are taken at x_t, where the lemma uses
them, so the bounds are as small as possible. `test_noisy_runs.py` adds noise.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
import torch
from random_problems import KINDS, list_cohorts, make_setting_at, random_problem, replace_constants, sample_everyone
from torch import Tensor

from fedcm.algorithms import FedCM
from fedcm.theory.problems.known_problem import KnownProblem
from fedcm.theory.problems.sampling import RoundSampler
from fedcm.theory.theorem.averages import compute_z
from fedcm.theory.theorem.bounds import (
    TheoremSetting,
    compute_drift_bound,
    compute_mean_gradient_bound,
    compute_momentum_step_bound,
)
from fedcm.theory.theorem.simulation import Simulation, StepSizes

PROBLEMS = 100  # per kind


def make_generator(number: int) -> np.random.Generator:
    return np.random.default_rng([20210621, number])


def is_close(a: Tensor, b: Tensor) -> bool:
    return bool((a - b).abs().max() <= 1e-11 * max(1.0, float(a.abs().max()), float(b.abs().max())))


# Identities


class Trace(NamedTuple):
    alpha: float
    global_lr: float
    params: list[Tensor]  # x_0 … x_T, (1, R, d)
    momentum: list[Tensor]  # Δ_0 … Δ_T
    mean_gradients: list[Tensor]  # Δ̃_0 … Δ̃_{T−1}


def trace_run(kind: str, number: int, rounds: int = 5) -> Trace:
    generator = make_generator(number)
    known = random_problem(kind, generator)
    if kind in ("ridge", "logistic", "quadratics"):
        known = replace(known, noise=generator.uniform(0, 2))  # pyright: ignore[reportArgumentType]
    alpha, steps = generator.uniform(0.05, 1), int(generator.integers(1, 6))
    client_lr = generator.uniform(0.01, 0.5) / (known.constants.smoothness * steps)
    sizes = StepSizes((client_lr,), (generator.uniform(0.2, 3) * client_lr * steps,))
    start = known.optimum + torch.from_numpy(generator.normal(size=(3, known.dimension)))
    simulation = Simulation(FedCM(alpha), known, sizes, steps, start)
    trace = Trace(alpha, sizes.global_lr[0], [simulation.server.params], [simulation.server.momentum], [])
    cohort_size = int(generator.integers(1, known.clients + 1))
    for sample in RoundSampler(known, cohort_size, steps, 3, seed=number).sample_rounds(rounds):
        recorded = simulation.run_round(sample, record=True)
        assert recorded is not None
        trace.mean_gradients.append(recorded.gradients.mean((0, 3)))
        trace.params.append(simulation.server.params)
        trace.momentum.append(simulation.server.momentum)
    return trace


def lemma_1_holds(trace: Trace, alpha: float) -> bool:
    """Δ_{t+1} = α·Δ̃_t + (1 − α)·Δ_t."""
    pairs = zip(trace.momentum, trace.momentum[1:], trace.mean_gradients, strict=False)
    return all(is_close(after, alpha * mean + (1 - alpha) * before) for before, after, mean in pairs)


def z_descends(trace: Trace, alpha: float, global_lr: float) -> bool:
    """z_{t+1} = z_t − η_g·Δ̃_t."""
    before = [trace.params[0], *trace.params]
    z = [compute_z(now, past, alpha) for now, past in zip(trace.params, before, strict=False)]
    return all(is_close(b, a - global_lr * m) for a, b, m in zip(z, z[1:], trace.mean_gradients, strict=False))


def momentum_norms_hold(trace: Trace, shift: int = 0) -> bool:
    """‖Δ_{t+1}‖² ≤ α‖Δ̃_t‖² + (1 − α)‖Δ_t‖², with the mean gradient `shift` rounds later."""
    square: Callable[[Tensor], Tensor] = lambda vectors: vectors.square().sum(-1)  # noqa: E731
    for t in range(len(trace.mean_gradients) - shift):
        gradients, now = square(trace.mean_gradients[t + shift]), square(trace.momentum[t])
        bound = trace.alpha * gradients + (1 - trace.alpha) * now
        assert is_close(bound, torch.as_tensor(compute_momentum_step_bound(trace.alpha, gradients, now)))  # pyright: ignore
        if bool((square(trace.momentum[t + 1]) > bound * (1 + 1e-12)).any()):
            return False
    return True


@pytest.mark.parametrize("kind", KINDS)
def test_identities_hold_on_random_problems(kind: str) -> None:
    for number in range(PROBLEMS):
        trace = trace_run(kind, number)
        assert lemma_1_holds(trace, trace.alpha), number
        assert z_descends(trace, trace.alpha, trace.global_lr), number
        assert momentum_norms_hold(trace), number


def test_wrong_identities_fail() -> None:
    trace = trace_run("ridge", 1)
    assert not lemma_1_holds(trace, 1 - trace.alpha)
    assert not z_descends(trace, trace.alpha, -trace.global_lr)
    assert not z_descends(trace, trace.alpha, trace.global_lr * trace.alpha)


def test_momentum_norm_with_the_printed_index_fails() -> None:
    """The paper prints Δ̃_{t+1} for Δ̃_t; by then the gradient may be small."""
    assert not all(
        momentum_norms_hold(trace_run(kind, number), shift=1) for kind in KINDS for number in range(PROBLEMS)
    )


# Drift of the clients, and the norm of the mean gradient


class LemmaRound(NamedTuple):
    """One round of all clients from a random point with a random Δ; exact, since there is no noise."""

    problem: KnownProblem
    setting: TheoremSetting
    client_lr: float
    momentum: float  # ‖Δ_t‖²
    drift: float  # ε_t
    mean_gradient: float  # E‖Δ̃_t‖² over all cohorts


@cache
def run_one_round(kind: str, number: int, longest: float = 0.25, at_optimum: bool = False) -> LemmaRound:
    generator = make_generator(number)
    known = random_problem(kind, generator)
    alpha, steps = generator.uniform(0.02, 1), int(generator.integers(1, 9))
    cohort_size = int(generator.integers(1, known.clients + 1))
    client_lr = longest / (known.constants.smoothness * steps)
    distance = 0.0 if at_optimum else 10 ** generator.uniform(-2, 1)
    start = known.optimum + distance * torch.from_numpy(generator.normal(size=(1, known.dimension)))
    momentum = 10 ** generator.uniform(-2, 1) * torch.from_numpy(generator.normal(size=(1, 1, known.dimension)))
    simulation = Simulation(FedCM(alpha), known, StepSizes((client_lr,), (client_lr * steps,)), steps, start)
    simulation.server = simulation.server._replace(momentum=momentum)
    recorded = simulation.run_round(sample_everyone(known), record=True)
    assert recorded is not None
    drift = (recorded.positions - start).square().sum(-1).mean()
    by_client = recorded.gradients.mean(0)[0, 0]  # (N, d): the mean over a client's steps
    means = by_client[list_cohorts(known.clients, cohort_size)].mean(1)
    setting = make_setting_at(known, start, cohort_size, steps, alpha)
    squares = momentum.square().sum(), means.square().sum(-1).mean()
    return LemmaRound(known, setting, client_lr, float(squares[0]), float(drift), float(squares[1]))


def run_rounds(longest: float = 0.25) -> Iterator[LemmaRound]:
    for kind in KINDS:
        for number in range(PROBLEMS):
            yield run_one_round(kind, number, longest, at_optimum=number % 5 == 0)


def drift_holds(r: LemmaRound, setting: TheoremSetting, momentum: float, times: float = 1.0) -> bool:
    return r.drift <= times * compute_drift_bound(setting, r.client_lr, momentum) + 1e-12


def gradient_holds(r: LemmaRound, setting: TheoremSetting, drift: float, times: float = 1.0) -> bool:
    return r.mean_gradient <= times * compute_mean_gradient_bound(setting, drift) + 1e-12


def test_drift_is_below_its_bound() -> None:
    assert all(drift_holds(r, r.setting, r.momentum) for r in run_rounds())


def test_mean_gradient_is_below_its_bound() -> None:
    assert all(gradient_holds(r, r.setting, r.drift) for r in run_rounds())


@pytest.mark.parametrize(
    "mutant",
    [
        lambda r: drift_holds(r, r.setting, 0.0),
        lambda r: drift_holds(r, replace(r.setting, gradient_bound=0.0), r.momentum),
        lambda r: drift_holds(r, replace_constants(r.setting, dissimilarity=0.0), r.momentum),
        lambda r: drift_holds(r, r.setting, r.momentum, times=0.02),
        lambda r: gradient_holds(r, replace(r.setting, gradient_bound=0.0), r.drift),
        lambda r: gradient_holds(r, replace_constants(r.setting, dissimilarity=0.0), r.drift),
        lambda r: gradient_holds(r, r.setting, 0.0),
        lambda r: gradient_holds(r, r.setting, r.drift, times=0.05),
    ],
    ids=["no Δ", "no G", "no σ_g", "a fiftieth", "gradient: no G", "no σ_g", "no drift", "a twentieth"],
)
def test_weakened_bounds_fail(mutant: Callable[[LemmaRound], bool]) -> None:
    assert not all(map(mutant, run_rounds()))


def test_drift_bound_needs_its_limit_on_client_lr() -> None:
    assert not all(drift_holds(r, r.setting, r.momentum) for r in run_rounds(longest=30.0))


# Perturbed strong convexity


def perturbed_convexity_holds(known: KnownProblem, points: Tensor, strong: float, smooth: float) -> bool:
    """⟨∇f(x), y − z⟩ ≤ f(y) − f(z) − `strong`·‖y − z‖² + `smooth`·‖z − x‖²."""
    x, y, z = points
    left = (known.gradient(x) * (y - z)).sum(-1)
    right = known.value(y) - known.value(z) - strong * (y - z).square().sum(-1) + smooth * (z - x).square().sum(-1)
    return bool((left <= right + 1e-9 * (1 + right.abs())).all())


@pytest.mark.slow
def test_perturbed_strong_convexity_holds() -> None:
    problems = []
    for kind in ("quadratics", "ridge", "logistic"):
        for number in range(PROBLEMS):
            generator = make_generator(number)
            known = random_problem(kind, generator)
            problems.append((known, known.optimum + torch.from_numpy(generator.normal(size=(3, 20, known.dimension)))))

    def all_hold(strong: float, smooth: float) -> bool:
        return all(
            perturbed_convexity_holds(
                known, points, strong * known.constants.strong_convexity, smooth * known.constants.smoothness
            )
            for known, points in problems
        )

    assert all_hold(1 / 4, 1)
    assert not all_hold(1, 1)
    assert not all_hold(1 / 4, 0)
    assert not all_hold(-1 / 4, -1)


def test_perturbed_convexity_fails_for_a_nonconvex_function() -> None:
    known = random_problem("saturating", make_generator(0))
    points = 3 * torch.from_numpy(make_generator(1).normal(size=(3, 500, known.dimension)))
    assert not perturbed_convexity_holds(known, points, 0.0, 0.1)


def test_list_cohorts_lists_every_cohort_once() -> None:
    cohorts = list_cohorts(5, 2)
    assert cohorts.unique(dim=0).shape == cohorts.shape == (10, 2)
    assert (cohorts[:, 0] < cohorts[:, 1]).all()
