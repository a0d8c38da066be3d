"""The lemmas and the theorem hold over whole runs with gradient noise, with explicit constants; their mutants fail.

Expectations are exact: on quadratics from the closed forms of `second_moments.py`; without convexity by enumerating
every cohort and every sign of the noise. The lemmas on drift and on the mean gradient use G and σ_g at x_t; V and the
theorem use the largest along the run, and the saturating problem its global G.
"""

from collections.abc import Callable
from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np
import pytest
import torch
from random_problems import list_cohorts, random_quadratics, replace_constants
from second_moments import Moments
from torch import Tensor

from fedcm.algorithms import FedCM
from fedcm.theory.problems.sampling import RoundSample
from fedcm.theory.problems.saturating import Saturating
from fedcm.theory.theorem import bounds
from fedcm.theory.theorem.averages import compute_z
from fedcm.theory.theorem.bounds import TheoremSetting
from fedcm.theory.theorem.simulation import Simulation, StepSizes


class Run(NamedTuple):
    """Exact second moments of a noisy run."""

    setting: TheoremSetting  # with the largest G and σ_g along the run, root mean square
    moments: Moments
    start: Tensor
    history: list[Tensor]  # second moments of (x_t − x*, Δ_t, 1), t = 0 … T

    @property
    def rounds(self) -> int:
        return len(self.history) - 1


def compute_run(number: int, averaging: bool = False) -> Run:
    generator, at_optimum = np.random.default_rng([20210621, number]), number % 5 == 0  # there, noise dominates
    known = random_quadratics(generator, noise=10 ** generator.uniform(-1, 1))
    alpha, steps = generator.uniform(0.05, 1), int(generator.integers(1, 7))
    cohort_size = int(generator.integers(1, known.clients + 1))
    client_lr = generator.uniform(0.1, 1) / (8 * known.smoothness * steps)
    global_lr = generator.uniform(0.02, 1) / known.smoothness * (1e-3 if at_optimum else 1)
    global_lr = client_lr * steps if averaging else global_lr
    moments = Moments(known, steps, cohort_size, alpha, client_lr, global_lr)
    distance_scale = 0.0 if at_optimum else 10 ** generator.uniform(-2, 1)
    start = known.optimum + distance_scale * torch.from_numpy(generator.normal(size=known.dimension))
    history = [moments.start(start)]
    for _ in range(20):
        history.append(moments.advance(history[-1]))
    setting = TheoremSetting(known.constants, 0.0, known.clients, cohort_size, steps, alpha)
    gradient = max(moments.squared_gradient(m) for m in history) ** 0.5
    dissimilarity = max(moments.squared_dissimilarity(m) for m in history) ** 0.5
    return Run(replace_gradients(setting, gradient, dissimilarity), moments, start, history)


def replace_gradients(setting: TheoremSetting, gradient: float, dissimilarity: float) -> TheoremSetting:
    constants = setting.constants._replace(dissimilarity=dissimilarity)
    return TheoremSetting(constants, gradient, setting.clients, setting.cohort_size, setting.steps, setting.alpha)


@cache
def list_runs(averaging: bool = False) -> list[Run]:
    return [compute_run(number, averaging) for number in range(100 if averaging else 200)]


# The lemmas


class LemmaRound(NamedTuple):
    """One round of a run."""

    setting: TheoremSetting  # with G and σ_g of x_t
    client_lr: float
    momentum: float  # E‖Δ_t‖²
    drift: float  # ε_t
    mean_gradient: float  # E‖Δ̃_t‖²


@cache
def list_rounds() -> list[LemmaRound]:
    rounds = []
    for r in list_runs():
        for m in r.history:
            dissimilarity, gradient = r.moments.squared_dissimilarity(m) ** 0.5, r.moments.squared_gradient(m) ** 0.5
            setting, momentum = replace_gradients(r.setting, gradient, dissimilarity), r.moments.momentum(m)
            rounds.append(
                LemmaRound(setting, r.moments.client_lr, momentum, r.moments.drift(m), r.moments.mean_gradient(m))
            )
    return rounds


def drift_holds(at: LemmaRound, setting: TheoremSetting) -> bool:
    return at.drift <= bounds.compute_drift_bound(setting, at.client_lr, at.momentum) * (1 + 1e-12)


def gradient_holds(at: LemmaRound, setting: TheoremSetting) -> bool:
    return at.mean_gradient <= bounds.compute_mean_gradient_bound(setting, at.drift) * (1 + 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("holds", [drift_holds, gradient_holds])
def test_drift_and_mean_gradient_are_below_their_bounds(holds: Callable[[LemmaRound, TheoremSetting], bool]) -> None:
    assert all(holds(at, at.setting) for at in list_rounds())


@pytest.mark.parametrize("holds", [drift_holds, gradient_holds])
def test_bounds_without_noise_fail(holds: Callable[[LemmaRound, TheoremSetting], bool]) -> None:
    assert not all(holds(at, replace_constants(at.setting, noise=0.0)) for at in list_rounds())


def norms_hold(r: Run, times: float = 1.0, setting: TheoremSetting | None = None) -> bool:
    bound = times * bounds.compute_norm_bound(setting or r.setting, r.moments.client_lr)
    worst = max(max(r.moments.momentum(m), r.moments.mean_gradient(m)) for m in r.history)
    return worst <= bound * (1 + 1e-12)


def test_norms_are_below_v() -> None:
    assert all(map(norms_hold, list_runs()))


@pytest.mark.parametrize(
    "mutant",
    [
        lambda r: norms_hold(r, times=1 / 200),
        lambda r: norms_hold(r, setting=replace_gradients(r.setting, 0.0, r.setting.constants.dissimilarity)),
        lambda r: norms_hold(r, setting=replace_constants(r.setting, noise=0.0)),
    ],
    ids=["a two-hundredth", "no G", "no σ_l"],
)
def test_smaller_v_fails(mutant: Callable[[Run], bool]) -> None:
    assert not all(map(mutant, list_runs()))


# The theorem with explicit constants


def strongly_convex_ratio(r: Run) -> float:
    """Return Σ w_t E f(z_t) − f* divided by its bound; f of the mean is even lower."""
    q = 1 - r.setting.constants.strong_convexity * r.moments.global_lr / 2
    weights = np.array([q ** (r.rounds - 1 - t) for t in range(r.rounds)])
    errors = np.array([r.moments.excess(m) for m in r.history[:-1]])
    bound = bounds.compute_explicit_strongly_convex_bound(r.setting, r.rounds, squared_distance(r), *step_sizes(r))
    return float(errors @ weights / weights.sum()) / bound


def convex_ratio(r: Run) -> float:
    error = float(np.mean([r.moments.excess(m) for m in r.history[:-1]]))
    return error / bounds.compute_explicit_convex_bound(r.setting, r.rounds, squared_distance(r), *step_sizes(r))


def nonconvex_ratio(r: Run) -> float:
    """The nonconvex case also holds for convex f."""
    error = float(np.mean([r.moments.squared_gradient_at_z(m) for m in r.history[:-1]]))
    excess = float(r.moments.problem.value(r.start))
    return error / bounds.compute_explicit_nonconvex_bound(r.setting, r.rounds, excess, *step_sizes(r))


def squared_distance(r: Run) -> float:
    return float((r.start - r.moments.problem.optimum).square().sum())


def step_sizes(r: Run) -> tuple[float, float]:
    return r.moments.client_lr, r.moments.global_lr


@pytest.mark.parametrize("averaging", [False, True], ids=["any η_g", "averaging"])
@pytest.mark.parametrize("ratio", [strongly_convex_ratio, convex_ratio, nonconvex_ratio])
def test_all_cases_hold_with_the_proofs_constants(ratio: Callable[[Run], float], averaging: bool) -> None:
    ratios = [ratio(r) for r in list_runs(averaging)]
    assert max(ratios) <= 1
    assert max(ratios) > 1 / 200  # a 200 times smaller bound would fail


class EnumeratedRun(NamedTuple):
    """A run of the saturating problem over every sequence of cohorts and every sign of the noise."""

    problem: Saturating
    setting: TheoremSetting
    excess: float  # F
    client_lr: float
    global_lr: float
    rounds: int
    squares: float  # the mean over t of E‖∇f(z_t)‖²


@cache
def enumerate_run(number: int) -> EnumeratedRun:
    generator = np.random.default_rng([20210622, number])
    clients, cohort_size, steps, rounds = [(3, 1, 2, 3), (3, 2, 1, 3), (2, 2, 1, 4), (4, 1, 1, 3)][number % 4]
    options = {"noise": 10 ** generator.uniform(-1, 1), "dissimilarity": generator.uniform(0, 3), "seed": number}
    known = Saturating(clients, int(generator.integers(1, 4)), **options)
    alpha, smoothness = generator.uniform(0.05, 1), known.constants.smoothness
    client_lr = generator.uniform(0.1, 1) / (8 * smoothness * steps)
    global_lr = generator.uniform(0.02, 1) / smoothness
    start = 2 * torch.from_numpy(generator.normal(size=known.dimension))
    subsets, flips = list_cohorts(clients, cohort_size), list(product((-1.0, 1.0), repeat=steps * cohort_size))
    outcomes = list(product(range(len(subsets)), range(len(flips))))
    paths = torch.tensor(list(product(range(len(outcomes)), repeat=rounds)))
    of_round, signed = torch.tensor(outcomes), torch.tensor(flips, dtype=torch.float64)
    noise_direction = torch.from_numpy(generator.normal(size=known.dimension))
    noise_direction *= known.noise / noise_direction.norm()
    simulation = Simulation(
        FedCM(alpha), known, StepSizes((client_lr,), (global_lr,)), steps, start.expand(len(paths), -1)
    )
    before, total = simulation.server.params, 0.0
    for t in range(rounds):
        z = compute_z(simulation.server.params, before, alpha)
        total += float(known.gradient(z).square().sum(-1).mean())
        before = simulation.server.params
        chosen = of_round[paths[:, t]]
        noise = signed[chosen[:, 1]].reshape(len(paths), steps, cohort_size, 1).transpose(0, 1) * noise_direction
        simulation.run_round(RoundSample(subsets[chosen[:, 0]], noise))
    setting = TheoremSetting(known.constants, known.gradient_bound, clients, cohort_size, steps, alpha)
    return EnumeratedRun(known, setting, float(known.value(start)), client_lr, global_lr, rounds, total / rounds)


def test_nonconvex_case_holds_for_a_nonconvex_function() -> None:
    enumerated = [enumerate_run(number) for number in range(100)]
    ratios = [
        s.squares / bounds.compute_explicit_nonconvex_bound(s.setting, s.rounds, s.excess, s.client_lr, s.global_lr)
        for s in enumerated
    ]
    assert max(ratios) <= 1
    assert max(ratios) > 1 / 200
    start_alone = [2 * s.excess / (s.global_lr * s.rounds) for s in enumerated]
    assert any(s.squares > alone for s, alone in zip(enumerated, start_alone, strict=True))  # so noise and G matter
