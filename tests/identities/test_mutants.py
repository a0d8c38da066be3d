"""Wrong variants of the algorithms, most of them from public code: each identity must reject its mutants.

A mutant overrides one method of a `Federation` that the right algorithm passes in.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from federation import (
    Federation,
    Minibatch,
    clip_vector,
    draw_cohorts,
    draw_fixed_cohorts,
    list_everyone,
    make_decaying_rates,
    make_quadratics,
)
from identities import (
    check_adam,
    check_control_is_the_mean_of_all_controls,
    check_controls_are_client_gradients,
    check_correction_is_the_mean_of_all_corrections,
    check_corrections_are_gradients_at_local_optima,
    check_fedavg_step,
    check_fedcm_server_step,
    check_feddyn_local_steps,
    check_feddyn_step,
    check_lemma_1,
    check_options_agree,
    check_reaches_the_optimum,
    check_scaffold_step,
    check_z_descends,
)

from fedcm.algorithms import FedAdam, FedAvg, FedCM, FedDyn, Scaffold
from fedcm.core.algorithm import LocalRun, Round, Vector

Check = Callable[[Federation], None]

ROUNDS = 12
COHORTS = [c for c in draw_cohorts(6, 3 * ROUNDS, 0.4) if c][:ROUNDS]
STEPS = [2, 3, 7, 1, 5, 4]
RATES = make_decaying_rates(0.1, 0.95, ROUNDS)
ALPHA = 0.2

FEDAVG = Federation(FedAvg(), make_quadratics(6), COHORTS, STEPS, RATES, noise=1.0)
FEDCM = replace(FEDAVG, algorithm=FedCM(ALPHA))
FEDCM_DECAYED = replace(FEDCM, weight_decay=0.1)
FEDCM_CLIPPED = replace(FEDCM, clip=1.0)
FEDCM_STEADY = replace(FEDCM, steps=[4] * 6, client_lrs=[0.05] * ROUNDS)
FEDADAM = replace(FEDAVG, algorithm=FedAdam(tau=0.01), server_lr=0.1)
SCAFFOLD_I = replace(FEDAVG, algorithm=Scaffold("I"))
SCAFFOLD_II = replace(FEDAVG, algorithm=Scaffold("II"))
SCAFFOLD_SINGLE = replace(SCAFFOLD_II, steps=[1] * 6, noise=0.0)
SCAFFOLD_LONG = Federation(Scaffold("II"), make_quadratics(6), list_everyone(6, 250), [8, 2, 5, 3, 10, 6], [0.05] * 250)
FEDDYN = replace(FEDAVG, algorithm=FedDyn(0.5))
FEDDYN_LONG = Federation(FedDyn(1.0), make_quadratics(6), list_everyone(6, 60), [30, 10, 20, 15, 40, 25], [0.1] * 60)
FEDDYN_SOLVED = Federation(FedDyn(1.0), make_quadratics(4), draw_fixed_cohorts(4, 10, 2), [120] * 4, [0.3] * 10)


# FedAvg


class DividesBySteps(Federation):
    """Movements divided by K_i, as if every client had taken one step."""

    def report(self, run: LocalRun, sent: Any, kept: Any) -> tuple[Any, Any]:
        report, kept = super().report(run, sent, kept)
        return report._replace(moved=report.moved / run.steps), kept


class Ascends(Federation):
    """The server adds instead of subtracting."""

    def update(self, server: Any, mean: Any, round: Round) -> Any:
        return super().update(server, mean._replace(moved=-mean.moved), round)


# FedCM


class FlippedMomentum(Federation):
    def direction(self, gradient: Minibatch, params: Vector, sent: Any, kept: Any) -> Vector:
        return ALPHA * gradient(params) - (1 - ALPHA) * sent.momentum


class SwappedAlpha(Federation):
    def direction(self, gradient: Minibatch, params: Vector, sent: Any, kept: Any) -> Vector:
        return (1 - ALPHA) * gradient(params) + ALPHA * sent.momentum


class HeavyBall(Federation):
    """The full gradient plus the momentum: the two weights do not add up to one."""

    def direction(self, gradient: Minibatch, params: Vector, sent: Any, kept: Any) -> Vector:
        return gradient(params) + (1 - ALPHA) * sent.momentum


class ClipsAfterTheMix(Federation):
    def direction(self, gradient: Minibatch, params: Vector, sent: Any, kept: Any) -> Vector:
        return clip_vector(super().direction(replace(gradient, clip=None), params, sent, kept), self.clip)


class DecaysAfterTheMix(Federation):
    def direction(self, gradient: Minibatch, params: Vector, sent: Any, kept: Any) -> Vector:
        mixed = super().direction(replace(gradient, weight_decay=0.0), params, sent, kept)
        return mixed + self.weight_decay * params


class StepsOfClientZero(Federation):
    def report(self, run: LocalRun, sent: Any, kept: Any) -> tuple[Any, Any]:
        steps = torch.full_like(run.steps, self.steps[0])
        return super().report(replace(run, steps=steps), sent, kept)


class RateOfRoundZero(Federation):
    def report(self, run: LocalRun, sent: Any, kept: Any) -> tuple[Any, Any]:
        return super().report(replace(run, direction_sum=run.moved / self.client_lrs[0]), sent, kept)


class SendsTheLastTensorOnly(Federation):
    """The momentum's other 'tensors' (all entries but the last) are lost on the way."""

    def broadcast(self, server: Any) -> Any:
        sent = super().broadcast(server)
        momentum = torch.zeros_like(sent.momentum)
        momentum[-1:] = sent.momentum[-1:]
        return sent._replace(momentum=momentum)


class ForgetsTheMomentum(Federation):
    def update(self, server: Any, mean: Any, round: Round) -> Any:
        after = super().update(server, mean, round)
        return after._replace(momentum=torch.zeros_like(after.momentum))


class StepsAlongTheOldMomentum(Federation):
    def update(self, server: Any, mean: Any, round: Round) -> Any:
        after = super().update(server, mean, round)
        step = round.server_lr * round.client_lr * round.steps
        return after._replace(params=server.params - step * server.momentum)


# FedAdam


class AdamVariant(Federation):
    """Adam on the mean movement, correct; each mutant changes one line."""

    def update(self, server: Any, mean: Any, round: Round) -> Any:
        adam = self.algorithm
        assert isinstance(adam, FedAdam)
        momentum = adam.beta1 * server.momentum + (1 - adam.beta1) * mean.moved
        second = adam.beta2 * server.second_moment + (1 - adam.beta2) * mean.moved**2
        step = self.adam_step(momentum, second, adam, round.index + 1)
        return type(server)(server.params - round.server_lr * step, momentum, second)

    def adam_step(self, momentum: Vector, second: Vector, adam: FedAdam, count: int) -> Vector:
        return momentum / (second.sqrt() + adam.tau)


class CorrectsTheBias(AdamVariant):
    def adam_step(self, momentum: Vector, second: Vector, adam: FedAdam, count: int) -> Vector:
        root = (second / (1 - adam.beta2**count)).sqrt()
        return momentum / (1 - adam.beta1**count) / (root + adam.tau)


class TauInsideTheRoot(AdamVariant):
    def adam_step(self, momentum: Vector, second: Vector, adam: FedAdam, count: int) -> Vector:
        return momentum / (second + adam.tau**2).sqrt()


class SecondMomentFromZero(Federation):
    def init_server(self, params: Vector) -> Any:
        server = super().init_server(params)
        return server._replace(second_moment=torch.zeros_like(params))


class AdamOnGradientUnits(Federation):
    def update(self, server: Any, mean: Any, round: Round) -> Any:
        return super().update(server, mean._replace(moved=mean.moved / (round.client_lr * round.steps)), round)


# SCAFFOLD


class FlippedCorrection(Federation):
    def direction(self, gradient: Minibatch, params: Vector, sent: Any, kept: Any) -> Vector:
        return gradient(params) + kept.control - sent.control


class NeverCorrects(Federation):
    def direction(self, gradient: Minibatch, params: Vector, sent: Any, kept: Any) -> Vector:
        return gradient(params)


class NoShareOfTheCohort(Federation):
    """The mean over the cohort is added whole: S/N is missing."""

    def update(self, server: Any, mean: Any, round: Round) -> Any:
        return super().update(server, mean, round)._replace(control=server.control + mean.control_change)


class NoDivisionByThePopulation(Federation):
    """The cohort's sum is added: 1/N is missing."""

    def update(self, server: Any, mean: Any, round: Round) -> Any:
        return (
            super()
            .update(server, mean, round)
            ._replace(control=server.control + round.cohort_size * mean.control_change)
        )


class FlippedChange(Federation):
    """The change is old − new, but the server still adds it."""

    def report(self, run: LocalRun, sent: Any, kept: Any) -> tuple[Any, Any]:
        report, kept = super().report(run, sent, kept)
        return report._replace(control_change=-report.control_change), kept


class NeverStores(Federation):
    def report(self, run: LocalRun, sent: Any, kept: Any) -> tuple[Any, Any]:
        return super().report(run, sent, kept)[0], kept


class ClientsStartAtTheWeights(Federation):
    def init_client(self, params: Vector) -> Any:
        return super().init_client(params)._replace(control=params.clone())


class EveryoneStartsAtTheWeights(ClientsStartAtTheWeights):
    """c stays the mean of all c_i, but does not start at 0."""

    def init_server(self, params: Vector) -> Any:
        return super().init_server(params)._replace(control=params.clone())


# FedDyn


class NoPenalty(Federation):
    """Neither the linear nor the quadratic term carries a gradient."""

    def direction(self, gradient: Minibatch, params: Vector, sent: Any, kept: Any) -> Vector:
        return gradient(params)


class NoQuadraticPenalty(Federation):
    def direction(self, gradient: Minibatch, params: Vector, sent: Any, kept: Any) -> Vector:
        return gradient(params) - kept.correction


class NoLinearPenalty(Federation):
    def direction(self, gradient: Minibatch, params: Vector, sent: Any, kept: Any) -> Vector:
        return super().direction(gradient, params, sent, kept) + kept.correction


class FlippedLinearPenalty(Federation):
    def direction(self, gradient: Minibatch, params: Vector, sent: Any, kept: Any) -> Vector:
        return super().direction(gradient, params, sent, kept) + 2 * kept.correction


class DynNoShareOfTheCohort(Federation):
    def update(self, server: Any, mean: Any, round: Round) -> Any:
        assert isinstance(self.algorithm, FedDyn)
        correction = server.correction + self.algorithm.alpha * mean.moved
        return type(server)(server.params - mean.moved - correction / self.algorithm.alpha, correction)


class StepsAlongTheOldCorrection(Federation):
    def update(self, server: Any, mean: Any, round: Round) -> Any:
        assert isinstance(self.algorithm, FedDyn)
        after = super().update(server, mean, round)
        return after._replace(params=server.params - mean.moved - server.correction / self.algorithm.alpha)


MUTANTS: list[tuple[type[Federation], Federation, Check]] = [
    (DividesBySteps, FEDAVG, check_fedavg_step),
    (Ascends, FEDAVG, check_fedavg_step),
    #
    (FlippedMomentum, FEDCM, check_lemma_1),
    (FlippedMomentum, FEDCM_STEADY, check_z_descends),
    (SwappedAlpha, FEDCM, check_lemma_1),
    (HeavyBall, FEDCM, check_lemma_1),
    (ClipsAfterTheMix, FEDCM_CLIPPED, check_lemma_1),
    (DecaysAfterTheMix, FEDCM_DECAYED, check_lemma_1),
    (StepsOfClientZero, FEDCM, check_lemma_1),
    (RateOfRoundZero, FEDCM, check_lemma_1),
    (SendsTheLastTensorOnly, FEDCM, check_lemma_1),
    (SendsTheLastTensorOnly, FEDCM_STEADY, check_z_descends),
    (ForgetsTheMomentum, FEDCM, check_lemma_1),
    (ForgetsTheMomentum, FEDCM, check_fedcm_server_step),
    (StepsAlongTheOldMomentum, FEDCM, check_fedcm_server_step),
    (StepsAlongTheOldMomentum, FEDCM_STEADY, check_z_descends),
    #
    (CorrectsTheBias, FEDADAM, check_adam),
    (TauInsideTheRoot, FEDADAM, check_adam),
    (SecondMomentFromZero, FEDADAM, check_adam),
    (AdamOnGradientUnits, FEDADAM, check_adam),
    #
    (FlippedCorrection, SCAFFOLD_I, check_scaffold_step),
    (FlippedCorrection, SCAFFOLD_II, check_controls_are_client_gradients),
    (FlippedCorrection, SCAFFOLD_SINGLE, check_options_agree),
    (FlippedCorrection, SCAFFOLD_LONG, check_reaches_the_optimum),
    (NeverCorrects, SCAFFOLD_I, check_scaffold_step),
    (NeverCorrects, SCAFFOLD_SINGLE, check_options_agree),
    (NeverCorrects, SCAFFOLD_LONG, check_reaches_the_optimum),
    (NoShareOfTheCohort, SCAFFOLD_I, check_control_is_the_mean_of_all_controls),
    (NoShareOfTheCohort, SCAFFOLD_II, check_control_is_the_mean_of_all_controls),
    (NoDivisionByThePopulation, SCAFFOLD_II, check_control_is_the_mean_of_all_controls),
    (NoDivisionByThePopulation, SCAFFOLD_LONG, check_reaches_the_optimum),
    (FlippedChange, SCAFFOLD_II, check_control_is_the_mean_of_all_controls),
    (NeverStores, SCAFFOLD_I, check_control_is_the_mean_of_all_controls),
    (NeverStores, SCAFFOLD_II, check_control_is_the_mean_of_all_controls),
    (NeverStores, SCAFFOLD_LONG, check_reaches_the_optimum),
    (ClientsStartAtTheWeights, SCAFFOLD_II, check_control_is_the_mean_of_all_controls),
    (EveryoneStartsAtTheWeights, SCAFFOLD_II, check_control_is_the_mean_of_all_controls),
    (StepsOfClientZero, SCAFFOLD_II, check_controls_are_client_gradients),
    #
    (NoPenalty, FEDDYN, check_feddyn_local_steps),
    (NoPenalty, FEDDYN_LONG, check_reaches_the_optimum),
    (NoPenalty, FEDDYN_SOLVED, check_corrections_are_gradients_at_local_optima),
    (NoQuadraticPenalty, FEDDYN, check_feddyn_local_steps),
    (NoQuadraticPenalty, FEDDYN_LONG, check_reaches_the_optimum),
    (NoQuadraticPenalty, FEDDYN_SOLVED, check_corrections_are_gradients_at_local_optima),
    (NoLinearPenalty, FEDDYN_LONG, check_reaches_the_optimum),
    (FlippedLinearPenalty, FEDDYN_LONG, check_reaches_the_optimum),
    (DynNoShareOfTheCohort, FEDDYN, check_correction_is_the_mean_of_all_corrections),
    (NeverStores, FEDDYN, check_correction_is_the_mean_of_all_corrections),
    (StepsAlongTheOldCorrection, FEDDYN, check_feddyn_step),
]


@pytest.mark.parametrize(
    ("mutant", "federation", "check"), MUTANTS, ids=[f"{m.__name__}-{c.__name__}" for m, _, c in MUTANTS]
)
def test_the_identity_rejects_the_mutant(mutant: type[Federation], federation: Federation, check: Check) -> None:
    with pytest.raises(AssertionError, match=r"differs by|from the optimum|must be 0"):
        check(mutant(**vars(federation)))


@pytest.mark.parametrize(
    ("federation", "check"),
    {(id(f), c): pytest.param(f, c, id=f"{type(f.algorithm).__name__}-{c.__name__}") for _, f, c in MUTANTS}.values(),
)
def test_the_identity_holds_for_the_correct_algorithm(federation: Federation, check: Check) -> None:
    check(federation)


def test_the_correct_adam_variant_passes() -> None:
    check_adam(AdamVariant(**vars(FEDADAM)))
