"""The appendix' inequalities and identities on hundreds of random problems, in float64; each can fail, as mutants show.

Expectations over cohorts are exact: all of them are taken. G and σ_g are taken where the lemma uses them, at x_t, so
the bounds are as small as they can be. There is noise in `test_noisy_runs.py`.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
import torch
from made import KINDS, all_cohorts, everyone, problem, setting_at, without
from torch import Tensor

from fedcm.algorithms import FedCM
from fedcm.theory.problems.draws import Draws
from fedcm.theory.problems.known_problem import KnownProblem
from fedcm.theory.theorem.averages import auxiliary
from fedcm.theory.theorem.bounds import Setting, drift_bound, mean_gradient_bound, momentum_step_bound
from fedcm.theory.theorem.walk import StepSizes, Walk

EACH = 100  # problems of each kind


def chance(number: int) -> np.random.Generator:
    return np.random.default_rng([20210621, number])


def close(a: Tensor, b: Tensor) -> bool:
    return bool((a - b).abs().max() <= 1e-11 * max(1.0, float(a.abs().max()), float(b.abs().max())))


# Identities


class Trace(NamedTuple):
    alpha: float
    global_lr: float
    params: list[Tensor]  # x_0 … x_T, (1, R, d)
    momentum: list[Tensor]  # Δ_0 … Δ_T
    mean_gradients: list[Tensor]  # Δ̃_0 … Δ̃_{T−1}


def traced(kind: str, number: int, rounds: int = 5) -> Trace:
    draw = chance(number)
    known = problem(kind, draw)
    if kind in ("ridge", "logistic", "quadratics"):
        known = replace(known, noise=draw.uniform(0, 2))  # pyright: ignore[reportArgumentType]
    alpha, steps = draw.uniform(0.05, 1), int(draw.integers(1, 6))
    client_lr = draw.uniform(0.01, 0.5) / (known.constants.smoothness * steps)
    sizes = StepSizes((client_lr,), (draw.uniform(0.2, 3) * client_lr * steps,))
    start = known.optimum + torch.from_numpy(draw.normal(size=(3, known.dimension)))
    walk = Walk(FedCM(alpha), known, sizes, steps, start)
    made = Trace(alpha, sizes.global_lr[0], [walk.server.params], [walk.server.momentum], [])
    cohort = int(draw.integers(1, known.clients + 1))
    for draws in Draws(known, cohort, steps, 3, seed=number).rounds(rounds):
        watched = walk.round(draws, watch=True)
        assert watched is not None
        made.mean_gradients.append(watched.gradients.mean((0, 3)))
        made.params.append(walk.server.params)
        made.momentum.append(walk.server.momentum)
    return made


def lemma_1_holds(trace: Trace, alpha: float) -> bool:
    """Δ_{t+1} = α·Δ̃_t + (1 − α)·Δ_t."""
    pairs = zip(trace.momentum, trace.momentum[1:], trace.mean_gradients, strict=False)
    return all(close(after, alpha * mean + (1 - alpha) * before) for before, after, mean in pairs)


def z_descends(trace: Trace, alpha: float, global_lr: float) -> bool:
    """z_{t+1} = z_t − η_g·Δ̃_t."""
    before = [trace.params[0], *trace.params]
    z = [auxiliary(now, past, alpha) for now, past in zip(trace.params, before, strict=False)]
    return all(close(b, a - global_lr * m) for a, b, m in zip(z, z[1:], trace.mean_gradients, strict=False))


def momentum_norms_hold(trace: Trace, shift: int = 0) -> bool:
    """‖Δ_{t+1}‖² ≤ α‖Δ̃_t‖² + (1 − α)‖Δ_t‖², with the mean gradient `shift` rounds later."""
    square: Callable[[Tensor], Tensor] = lambda vectors: vectors.square().sum(-1)  # noqa: E731
    for t in range(len(trace.mean_gradients) - shift):
        gradients, now = square(trace.mean_gradients[t + shift]), square(trace.momentum[t])
        bound = trace.alpha * gradients + (1 - trace.alpha) * now
        assert close(bound, torch.as_tensor(momentum_step_bound(trace.alpha, gradients, now)))  # pyright: ignore
        if bool((square(trace.momentum[t + 1]) > bound * (1 + 1e-12)).any()):
            return False
    return True


@pytest.mark.parametrize("kind", KINDS)
def test_lemma_1_the_z_sequence_and_the_momentums_norm_on_random_problems(kind: str) -> None:
    for number in range(EACH):
        trace = traced(kind, number)
        assert lemma_1_holds(trace, trace.alpha), number
        assert z_descends(trace, trace.alpha, trace.global_lr), number
        assert momentum_norms_hold(trace), number


def test_wrong_identities_do_not_hold() -> None:
    trace = traced("ridge", 1)
    assert not lemma_1_holds(trace, 1 - trace.alpha)
    assert not z_descends(trace, trace.alpha, -trace.global_lr)
    assert not z_descends(trace, trace.alpha, trace.global_lr * trace.alpha)


def test_the_momentums_norm_with_the_papers_index_does_not_hold() -> None:
    """It prints Δ̃_{t+1} for Δ̃_t: by then the gradient may have become small."""
    assert not all(momentum_norms_hold(traced(kind, number), shift=1) for kind in KINDS for number in range(EACH))


# Drift of the clients, and the norm of the mean gradient


class Round(NamedTuple):
    """One round from a random place with a random Δ, everybody working; exact, for there is no noise."""

    problem: KnownProblem
    setting: Setting
    client_lr: float
    momentum: float  # ‖Δ_t‖²
    drift: float  # ε_t
    mean_gradient: float  # E‖Δ̃_t‖² over all cohorts


@cache
def one_round(kind: str, number: int, longest: float = 0.25, at_optimum: bool = False) -> Round:
    draw = chance(number)
    known = problem(kind, draw)
    alpha, steps = draw.uniform(0.02, 1), int(draw.integers(1, 9))
    cohort = int(draw.integers(1, known.clients + 1))
    client_lr = longest / (known.constants.smoothness * steps)
    away = 0.0 if at_optimum else 10 ** draw.uniform(-2, 1)
    start = known.optimum + away * torch.from_numpy(draw.normal(size=(1, known.dimension)))
    momentum = 10 ** draw.uniform(-2, 1) * torch.from_numpy(draw.normal(size=(1, 1, known.dimension)))
    walk = Walk(FedCM(alpha), known, StepSizes((client_lr,), (client_lr * steps,)), steps, start)
    walk.server = walk.server._replace(momentum=momentum)
    watched = walk.round(everyone(known), watch=True)
    assert watched is not None
    drift = (watched.places - start).square().sum(-1).mean()
    own = watched.gradients.mean(0)[0, 0]  # (N, d): each client's mean over its steps
    means = own[all_cohorts(known.clients, cohort)].mean(1)
    setting = setting_at(known, start, cohort, steps, alpha)
    squares = momentum.square().sum(), means.square().sum(-1).mean()
    return Round(known, setting, client_lr, float(squares[0]), float(drift), float(squares[1]))


def rounds(longest: float = 0.25) -> Iterator[Round]:
    for kind in KINDS:
        for number in range(EACH):
            yield one_round(kind, number, longest, at_optimum=number % 5 == 0)


def drift_holds(r: Round, setting: Setting, momentum: float, times: float = 1.0) -> bool:
    return r.drift <= times * drift_bound(setting, r.client_lr, momentum) + 1e-12


def gradient_holds(r: Round, setting: Setting, drift: float, times: float = 1.0) -> bool:
    return r.mean_gradient <= times * mean_gradient_bound(setting, drift) + 1e-12


def test_client_drift_stays_below_its_bound() -> None:
    assert all(drift_holds(r, r.setting, r.momentum) for r in rounds())


def test_the_mean_gradients_norm_stays_below_its_bound() -> None:
    assert all(gradient_holds(r, r.setting, r.drift) for r in rounds())


@pytest.mark.parametrize(
    "mutant",
    [
        lambda r: drift_holds(r, r.setting, 0.0),
        lambda r: drift_holds(r, replace(r.setting, gradient_bound=0.0), r.momentum),
        lambda r: drift_holds(r, without(r.setting, dissimilarity=0.0), r.momentum),
        lambda r: drift_holds(r, r.setting, r.momentum, times=0.02),
        lambda r: gradient_holds(r, replace(r.setting, gradient_bound=0.0), r.drift),
        lambda r: gradient_holds(r, without(r.setting, dissimilarity=0.0), r.drift),
        lambda r: gradient_holds(r, r.setting, 0.0),
        lambda r: gradient_holds(r, r.setting, r.drift, times=0.05),
    ],
    ids=["no Δ", "no G", "no σ_g", "a fiftieth", "gradient: no G", "no σ_g", "no drift", "a twentieth"],
)
def test_bounds_with_a_term_left_out_or_a_smaller_constant_are_broken(mutant: Callable[[Round], bool]) -> None:
    assert not all(map(mutant, rounds()))


def test_the_drifts_bound_needs_its_limit_on_the_client_rate() -> None:
    assert not all(drift_holds(r, r.setting, r.momentum) for r in rounds(longest=30.0))


# Perturbed strong convexity


def perturbed(known: KnownProblem, points: Tensor, strong: float, smooth: float) -> bool:
    """⟨∇f(x), y − z⟩ ≤ f(y) − f(z) − `strong`·‖y − z‖² + `smooth`·‖z − x‖²."""
    x, y, z = points
    left = (known.gradient(x) * (y - z)).sum(-1)
    right = known.value(y) - known.value(z) - strong * (y - z).square().sum(-1) + smooth * (z - x).square().sum(-1)
    return bool((left <= right + 1e-9 * (1 + right.abs())).all())


def test_perturbed_strong_convexity() -> None:
    made = []
    for kind in ("quadratics", "ridge", "logistic"):
        for number in range(EACH):
            draw = chance(number)
            known = problem(kind, draw)
            made.append((known, known.optimum + torch.from_numpy(draw.normal(size=(3, 20, known.dimension)))))

    def all_hold(strong: float, smooth: float) -> bool:
        return all(
            perturbed(known, points, strong * known.constants.strong_convexity, smooth * known.constants.smoothness)
            for known, points in made
        )

    assert all_hold(1 / 4, 1)
    assert not all_hold(1, 1)
    assert not all_hold(1 / 4, 0)
    assert not all_hold(-1 / 4, -1)


def test_a_function_that_is_not_convex_breaks_it() -> None:
    known = problem("saturating", chance(0))
    points = 3 * torch.from_numpy(chance(1).normal(size=(3, 500, known.dimension)))
    assert not perturbed(known, points, 0.0, 0.1)


def test_the_cohorts_of_the_expectation_are_all_there_are() -> None:
    cohorts = all_cohorts(5, 2)
    assert cohorts.unique(dim=0).shape == cohorts.shape == (10, 2)
    assert (cohorts[:, 0] < cohorts[:, 1]).all()
