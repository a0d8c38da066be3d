"""The lemmas and the theorem over whole runs with gradient noise, nothing hidden in an O; mutants show they can fail.

Expectations are exact: on quadratics `second_moments.py` has closed forms; without convexity every cohort and every
sign of the noise is walked. The lemmas on drift and on the mean gradient have G and σ_g of x_t; V and the theorem have
the largest on the way, of which they speak, and the saturating problem the G that holds everywhere.
"""

from collections.abc import Callable
from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np
import pytest
import torch
from made import all_cohorts, quadratics, without
from second_moments import Moments
from torch import Tensor

from fedcm.algorithms import FedCM
from fedcm.theory.problems.draws import RoundDraws
from fedcm.theory.problems.saturating import Saturating
from fedcm.theory.theorem import bounds
from fedcm.theory.theorem.averages import auxiliary
from fedcm.theory.theorem.bounds import Setting
from fedcm.theory.theorem.walk import StepSizes, Walk


class Run(NamedTuple):
    setting: Setting  # with the largest G and σ_g on the way, root mean square
    moments: Moments
    start: Tensor
    way: list[Tensor]  # second moments of (x_t − x*, Δ_t, 1), t = 0 … T

    @property
    def rounds(self) -> int:
        return len(self.way) - 1


def run(number: int, averaging: bool = False) -> Run:
    draw, at_optimum = np.random.default_rng([20210621, number]), number % 5 == 0  # there, noise is nearly all there is
    known = quadratics(draw, noise=10 ** draw.uniform(-1, 1))
    alpha, steps, cohort = draw.uniform(0.05, 1), int(draw.integers(1, 7)), int(draw.integers(1, known.clients + 1))
    client_lr = draw.uniform(0.1, 1) / (8 * known.smoothness * steps)
    global_lr = draw.uniform(0.02, 1) / known.smoothness * (1e-3 if at_optimum else 1)
    global_lr = client_lr * steps if averaging else global_lr
    moments = Moments(known, steps, cohort, alpha, client_lr, global_lr)
    away = 0.0 if at_optimum else 10 ** draw.uniform(-2, 1)
    start = known.optimum + away * torch.from_numpy(draw.normal(size=known.dimension))
    way = [moments.start(start)]
    for _ in range(20):
        way.append(moments.next(way[-1]))
    made = Setting(known.constants, 0.0, known.clients, cohort, steps, alpha)
    gradient = max(moments.squared_gradient(m) for m in way) ** 0.5
    differ = max(moments.squared_dissimilarity(m) for m in way) ** 0.5
    return Run(with_these(made, gradient, differ), moments, start, way)


def with_these(setting: Setting, gradient: float, differ: float) -> Setting:
    constants = setting.constants._replace(dissimilarity=differ)
    return Setting(constants, gradient, setting.clients, setting.cohort, setting.steps, setting.alpha)


@cache
def runs(averaging: bool = False) -> list[Run]:
    return [run(number, averaging) for number in range(100 if averaging else 200)]


# The lemmas


class At(NamedTuple):
    """One round of a run."""

    setting: Setting  # with G and σ_g of x_t
    client_lr: float
    momentum: float  # E‖Δ_t‖²
    drift: float  # ε_t
    mean_gradient: float  # E‖Δ̃_t‖²


@cache
def rounds() -> list[At]:
    found = []
    for r in runs():
        for m in r.way:
            differ, gradient = r.moments.squared_dissimilarity(m) ** 0.5, r.moments.squared_gradient(m) ** 0.5
            setting, momentum = with_these(r.setting, gradient, differ), r.moments.momentum(m)
            found.append(At(setting, r.moments.client_lr, momentum, r.moments.drift(m), r.moments.mean_gradient(m)))
    return found


def drift_holds(at: At, setting: Setting) -> bool:
    return at.drift <= bounds.drift_bound(setting, at.client_lr, at.momentum) * (1 + 1e-12)


def gradient_holds(at: At, setting: Setting) -> bool:
    return at.mean_gradient <= bounds.mean_gradient_bound(setting, at.drift) * (1 + 1e-12)


@pytest.mark.parametrize("holds", [drift_holds, gradient_holds])
def test_drift_and_mean_gradient_stay_below_their_bounds(holds: Callable[[At, Setting], bool]) -> None:
    assert all(holds(at, at.setting) for at in rounds())


@pytest.mark.parametrize("holds", [drift_holds, gradient_holds])
def test_without_the_noise_either_bound_is_broken(holds: Callable[[At, Setting], bool]) -> None:
    assert not all(holds(at, without(at.setting, noise=0.0)) for at in rounds())


def norms_hold(r: Run, times: float = 1.0, setting: Setting | None = None) -> bool:
    bound = times * bounds.norm_bound(setting or r.setting, r.moments.client_lr)
    worst = max(max(r.moments.momentum(m), r.moments.mean_gradient(m)) for m in r.way)
    return worst <= bound * (1 + 1e-12)


def test_both_norms_stay_below_v() -> None:
    assert all(map(norms_hold, runs()))


@pytest.mark.parametrize(
    "mutant",
    [
        lambda r: norms_hold(r, times=1 / 200),
        lambda r: norms_hold(r, setting=with_these(r.setting, 0.0, r.setting.constants.dissimilarity)),
        lambda r: norms_hold(r, setting=without(r.setting, noise=0.0)),
    ],
    ids=["a two-hundredth", "no G", "no σ_l"],
)
def test_a_smaller_v_is_broken(mutant: Callable[[Run], bool]) -> None:
    assert not all(map(mutant, runs()))


# The theorem, before anything is hidden in an O


def strongly_convex_ratio(r: Run) -> float:
    """Σ w_t E f(z_t) − f* over its bound. (f of the mean is lower yet.)"""
    q = 1 - r.setting.constants.strong_convexity * r.moments.global_lr / 2
    weights = np.array([q ** (r.rounds - 1 - t) for t in range(r.rounds)])
    errors = np.array([r.moments.excess(m) for m in r.way[:-1]])
    bound = bounds.explicit_strongly_convex_bound(r.setting, r.rounds, distance(r), *step_sizes(r))
    return float(errors @ weights / weights.sum()) / bound


def convex_ratio(r: Run) -> float:
    error = float(np.mean([r.moments.excess(m) for m in r.way[:-1]]))
    return error / bounds.explicit_convex_bound(r.setting, r.rounds, distance(r), *step_sizes(r))


def nonconvex_ratio(r: Run) -> float:
    """What holds without convexity holds with it."""
    error = float(np.mean([r.moments.squared_gradient_at_z(m) for m in r.way[:-1]]))
    excess = float(r.moments.problem.value(r.start))
    return error / bounds.explicit_nonconvex_bound(r.setting, r.rounds, excess, *step_sizes(r))


def distance(r: Run) -> float:
    return float((r.start - r.moments.problem.optimum).square().sum())


def step_sizes(r: Run) -> tuple[float, float]:
    return r.moments.client_lr, r.moments.global_lr


@pytest.mark.parametrize("averaging", [False, True], ids=["any η_g", "averaging"])
@pytest.mark.parametrize("ratio", [strongly_convex_ratio, convex_ratio, nonconvex_ratio])
def test_all_three_cases_hold_with_the_proofs_own_constants(ratio: Callable[[Run], float], averaging: bool) -> None:
    found = [ratio(r) for r in runs(averaging)]
    assert max(found) <= 1
    assert max(found) > 1 / 200  # a bound a two-hundredth as large would be broken


class Signs(NamedTuple):
    """A run of the saturating problem over every sequence of cohorts and every sign of the noise."""

    problem: Saturating
    setting: Setting
    excess: float  # F
    client_lr: float
    global_lr: float
    rounds: int
    squares: float  # the mean over t of E‖∇f(z_t)‖²


@cache
def signs(number: int) -> Signs:
    draw = np.random.default_rng([20210622, number])
    clients, cohort, steps, rounds = [(3, 1, 2, 3), (3, 2, 1, 3), (2, 2, 1, 4), (4, 1, 1, 3)][number % 4]
    made = {"noise": 10 ** draw.uniform(-1, 1), "dissimilarity": draw.uniform(0, 3), "seed": number}
    known = Saturating(clients, int(draw.integers(1, 4)), **made)
    alpha, smoothness = draw.uniform(0.05, 1), known.constants.smoothness
    client_lr = draw.uniform(0.1, 1) / (8 * smoothness * steps)
    global_lr = draw.uniform(0.02, 1) / smoothness
    start = 2 * torch.from_numpy(draw.normal(size=known.dimension))
    subsets, flips = all_cohorts(clients, cohort), list(product((-1.0, 1.0), repeat=steps * cohort))
    each = list(product(range(len(subsets)), range(len(flips))))
    paths = torch.tensor(list(product(range(len(each)), repeat=rounds)))
    of_each, signed = torch.tensor(each), torch.tensor(flips, dtype=torch.float64)
    way = torch.from_numpy(draw.normal(size=known.dimension))
    way *= known.noise / way.norm()
    walk = Walk(FedCM(alpha), known, StepSizes((client_lr,), (global_lr,)), steps, start.expand(len(paths), -1))
    before, total = walk.server.params, 0.0
    for t in range(rounds):
        z = auxiliary(walk.server.params, before, alpha)
        total += float(known.gradient(z).square().sum(-1).mean())
        before = walk.server.params
        chosen = of_each[paths[:, t]]
        noise = signed[chosen[:, 1]].reshape(len(paths), steps, cohort, 1).transpose(0, 1) * way
        walk.round(RoundDraws(subsets[chosen[:, 0]], noise))
    setting = Setting(known.constants, known.gradient_bound, clients, cohort, steps, alpha)
    return Signs(known, setting, float(known.value(start)), client_lr, global_lr, rounds, total / rounds)


def test_the_case_without_convexity_holds_where_there_is_none_and_g_is_known() -> None:
    found = [signs(number) for number in range(100)]
    ratios = [
        s.squares / bounds.explicit_nonconvex_bound(s.setting, s.rounds, s.excess, s.client_lr, s.global_lr)
        for s in found
    ]
    assert max(ratios) <= 1
    assert max(ratios) > 1 / 200
    start_alone = [2 * s.excess / (s.global_lr * s.rounds) for s in found]
    assert any(s.squares > alone for s, alone in zip(found, start_alone, strict=True))  # noise and G do count
