"""FedCM-Anytime: its momentum is a plain mean first and FedCM's later, and its result is a known mean of the models.

Each identity has mutants that must fail.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import comb
from typing import Any

import pytest
import torch
from federation import Federation, draw_cohorts, make_decaying_rates, make_quadratics
from identities import assert_close, compute_mean_gradient, mean

from fedcm.algorithms import FedCM, FedCMAnytime
from fedcm.core.algorithm import Round, Vector

ROUNDS, DTYPES = 16, [torch.float64, torch.float32]
COHORTS = draw_cohorts(5, ROUNDS, 0.3)


def make_federation(alpha: float, average: float = 8.0, dtype: torch.dtype = torch.float64) -> Federation:
    """Unequal K_i, decaying η_l, cohorts of varying size, noise, decay and clipping in the client's own gradient."""
    return Federation(
        FedCMAnytime(alpha, average),
        make_quadratics(5, dtype=dtype),
        COHORTS,
        [1, 3, 7, 2, 5],
        make_decaying_rates(0.1, 0.95, ROUNDS),
        server_lr=0.7,
        noise=1.0,
        weight_decay=0.01,
        clip=3.0,
    )


def get_algorithm(federation: Federation) -> FedCMAnytime:
    assert isinstance(federation.algorithm, FedCMAnytime)
    return federation.algorithm


def check_momentum_is_a_plain_mean_first(federation: Federation) -> None:
    """Δ_t is the mean of the mean gradients of the first t updates, for all t ≤ 1/α."""
    alpha, gradients = get_algorithm(federation).alpha, []
    for past in federation.run():
        if past.locals:
            gradients.append(compute_mean_gradient(past))
            if len(gradients) * alpha <= 1:
                assert_close(past.after.momentum, mean(gradients), f"Δ after round {past.round.index}")


@dataclass(frozen=True)
class FromState(Federation):
    """A federation that starts from a given server state."""

    state: Any = None

    def init_server(self, params: Vector) -> Any:
        return self.state


def check_fedcm_continues(federation: Federation) -> None:
    """FedCM(α), from x and Δ after 1/α updates, takes the same rounds."""
    alpha, history = get_algorithm(federation).alpha, federation.run()
    first = next(i for i in range(1, ROUNDS) if sum(bool(past.locals) for past in history[:i]) >= 1 / alpha)
    state = history[first].before
    settings = {name: getattr(federation, name) for name in Federation.__dataclass_fields__}
    settings |= {"algorithm": FedCM(alpha), "cohorts": [[]] * first + list(federation.cohorts[first:])}
    start = FedCM(alpha).init_server(state.iterate)._replace(momentum=state.momentum)
    continued = FromState(**settings, state=start).run()
    assert any(one.locals for one in continued), "no round is left to compare"
    for own, other in zip(history[first:], continued[first:], strict=True):
        assert_close(own.after.momentum, other.after.momentum, f"Δ after round {own.round.index}")
        assert_close(own.after.iterate, other.after.params, f"x after round {own.round.index}")


def check_average(federation: Federation) -> None:
    """x̄_T = Σ_t w_t·x_t over the models after each update, w_t = C(t+k−1, k) / C(T+k, k+1), for whole k."""
    degree = int(get_algorithm(federation).average)
    models: list[Vector] = []
    for past in federation.run():
        if past.locals:
            models.append(past.after.iterate)
        if models:
            total = comb(len(models) + degree, degree + 1)
            weights = [comb(t + degree - 1, degree) / total for t in range(1, len(models) + 1)]
            expected = torch.stack([weight * model for weight, model in zip(weights, models, strict=True)]).sum(0)
            assert_close(past.after.params, expected, f"the mean after round {past.round.index}")


def check_clients_start_from_the_iterate(federation: Federation) -> None:
    """With equal K_i and s = 1, the new x is the mean of the clients' models."""
    for past in replace(federation, steps=[4] * 5, server_lr=1.0).run():
        if past.locals:
            ends = mean([local.end for local in past.locals.values()])
            assert_close(past.after.iterate, ends, f"x after round {past.round.index}")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("alpha", [0.02, 0.1, 0.25, 1 / 3, 1.0])
def test_the_momentum_is_first_the_plain_mean_of_all_mean_gradients(alpha: float, dtype: torch.dtype) -> None:
    check_momentum_is_a_plain_mean_first(make_federation(alpha, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("alpha", [0.2, 0.3, 0.5, 1.0])
def test_afterwards_the_models_are_those_of_fedcm(alpha: float, dtype: torch.dtype) -> None:
    check_fedcm_continues(make_federation(alpha, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("average", [1.0, 2.0, 8.0])
def test_the_result_is_the_polynomial_mean_of_the_models(average: float, dtype: torch.dtype) -> None:
    check_average(make_federation(0.2, average, dtype))


@pytest.mark.parametrize("average", [0.5, 2.7, 8.0, 1e30])
def test_the_weights_of_the_mean_agree_with_a_literal_loop(average: float) -> None:
    """The weight of a model is γ_t at first, and each later update multiplies it by 1 − γ."""
    weights: list[float] = []
    models: list[Vector] = []
    for past in make_federation(0.2, average).run():
        if past.locals:
            share = (average + 1) / (len(models) + 1 + average)
            weights = [weight * (1 - share) for weight in weights] + [share]
            models.append(past.after.iterate)
            assert sum(weights) == pytest.approx(1)
            expected = torch.stack([weight * model for weight, model in zip(weights, models, strict=True)]).sum(0)
            assert_close(past.after.params, expected, f"the mean after round {past.round.index}")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_huge_degree_turns_the_averaging_off_to_the_bit(dtype: torch.dtype) -> None:
    history = make_federation(0.2, 0.0, dtype).run()
    assert all(torch.equal(past.after.params, past.after.iterate) for past in history)
    averaged = make_federation(0.2, 8.0, dtype).run()
    assert all(torch.equal(a.after.iterate, b.after.iterate) for a, b in zip(history, averaged, strict=True))


def test_clients_start_from_the_iterate() -> None:
    check_clients_start_from_the_iterate(make_federation(0.2))


def test_empty_rounds_are_not_counted() -> None:
    taken = [bool(cohort) for cohort in COHORTS]
    assert False in taken[: taken.index(True) + 4], "the mutants need an early empty round"
    *_, last = make_federation(0.2).run()
    assert last.after.updates.tolist() == [sum(taken)]


# mutants


class CountsFromOne(Federation):
    """The first client gradient has the weight 1/2."""

    def broadcast(self, server: Any) -> Any:
        return super().broadcast(server._replace(updates=server.updates + 1))


class CountsEmptyRounds(Federation):
    def update(self, server: Any, mean: Any, round: Round) -> Any:
        after = super().update(server._replace(updates=torch.full_like(server.updates, round.index)), mean, round)
        return after._replace(updates=torch.full_like(after.updates, round.index + 1))


class HasAConstantAlpha(Federation):
    """FedCM: the first updates are biased to 0."""

    def broadcast(self, server: Any) -> Any:
        sent = super().broadcast(server)
        return sent._replace(alpha=torch.full_like(sent.alpha, get_algorithm(self).alpha))


class HasNoFloor(Federation):
    def broadcast(self, server: Any) -> Any:
        return super().broadcast(server)._replace(alpha=1 / (server.updates + 1))


class SwapsTheWeights(Federation):
    def broadcast(self, server: Any) -> Any:
        sent = super().broadcast(server)
        return sent._replace(alpha=1 - sent.alpha)


class AveragesTheStartToo(Federation):
    """γ = (k+1)/(t+k+1): the initial model keeps a weight."""

    def update(self, server: Any, mean: Any, round: Round) -> Any:
        after = super().update(server._replace(updates=server.updates + 1), mean, round)
        return after._replace(updates=server.updates + 1)


class AveragesWithAFixedShare(Federation):
    def update(self, server: Any, mean: Any, round: Round) -> Any:
        after = super().update(server, mean, round)
        return after._replace(params=torch.lerp(server.params, after.iterate, 0.5))


class SendsTheAverage(Federation):
    def broadcast(self, server: Any) -> Any:
        return super().broadcast(server)._replace(params=server.params)


Check = Callable[[Federation], None]
MUTANTS: list[tuple[type[Federation], Check]] = [
    (CountsFromOne, check_momentum_is_a_plain_mean_first),
    (CountsEmptyRounds, check_momentum_is_a_plain_mean_first),
    (HasAConstantAlpha, check_momentum_is_a_plain_mean_first),
    (SwapsTheWeights, check_momentum_is_a_plain_mean_first),
    (HasNoFloor, check_fedcm_continues),
    (SwapsTheWeights, check_fedcm_continues),
    (SendsTheAverage, check_fedcm_continues),
    (AveragesTheStartToo, check_average),
    (CountsEmptyRounds, check_average),
    (AveragesWithAFixedShare, check_average),
    (SendsTheAverage, check_clients_start_from_the_iterate),
]


@pytest.mark.parametrize(("mutant", "check"), MUTANTS, ids=lambda value: value.__name__)
def test_each_identity_rejects_its_mutants(mutant: type[Federation], check: Check) -> None:
    federation = make_federation(0.2)
    check(federation)
    with pytest.raises(AssertionError, match="differs by"):
        check(mutant(**{name: getattr(federation, name) for name in Federation.__dataclass_fields__}))
