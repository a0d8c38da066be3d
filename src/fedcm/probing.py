"""Short trials of FedCM on an experiment's data, for `fedcm.advice`: same start, same cohorts, same minibatches.

First with a few α at the experiment's η_l, then with the best of them at a third and at three times that rate, there
with a third of it too. The loss is over clients' training data, never the test set.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from fedcm.advice import ALPHAS, Probe, Setting, Trial, best_of, variations
from fedcm.algorithm import Round, Vector
from fedcm.algorithms.fedcm import FedCM
from fedcm.assembly import Assembly
from fedcm.chance import Purpose, generator
from fedcm.diagnosis import diagnose
from fedcm.evaluate import PIECE, Score
from fedcm.executors.executor import Diverged
from fedcm.executors.local import LocalExecutor
from fedcm.executors.runner import ClientRunner
from fedcm.schedule import Schedule
from fedcm.threads import one_thread
from fedcm.training import training

FEWEST = 10  # rounds of a trial, unless asked for fewer
TRIALS = len(ALPHAS) + 3
_TIMED, _TIMING = 10, 2.0  # rounds, or seconds, by which a round's time is found
_MARKS = 6  # losses along a trial
_EXAMPLES = 2000  # that a loss is taken over
_CLIENTS = 100  # whose gradients the diagnosis takes
_SMOOTHNESS = 5  # clients for the smoothness
_DESCENT = (1.0, 1 / 3, 1 / 9)  # of η_l, where everything diverges

Passing = Callable[[int], None]  # told of every round that is done


def setting_of(assembly: Assembly) -> Setting:
    plan, client, runner = assembly.plan, assembly.experiment.client, assembly.runner
    algorithm = assembly.experiment.algorithm
    sizes = [
        len(plan.participation.cohort(plan.population, plan.seed, index)) for index in range(min(plan.rounds, 500))
    ]
    steps = runner.steps(np.arange(min(plan.population, 10_000)))
    return Setting(
        rounds=plan.rounds,
        population=plan.population,
        cohort=float(np.mean(sizes)),
        empty=float(np.mean([size == 0 for size in sizes])),
        steps=float(steps.mean()),
        steps_least=int(steps.min()),
        steps_most=int(steps.max()),
        weight_decay=client.weight_decay,
        decay_in_step=client.weight_decay_at == "step",
        alpha=algorithm.alpha if isinstance(algorithm, FedCM) else None,
    )


def affordable(assembly: Assembly, seconds: float, passing: Passing) -> int:
    """Rounds a trial, so that all of them take about so long; a few are timed, after a first that warms up."""
    times = [time.perf_counter()]
    with suppress(Diverged):
        for _ in _rounds(assembly, 1.0, assembly.experiment.client.lr, min(assembly.plan.rounds, _TIMED)):
            passing(1)
            times.append(time.perf_counter())
            if len(times) > 2 and times[-1] - times[1] > _TIMING:
                break
    each = (times[-1] - times[1]) / (len(times) - 2) if len(times) > 2 else seconds
    return min(max(int(seconds / TRIALS / max(each, 1e-6)), FEWEST), assembly.plan.rounds)


def probe(assembly: Assembly, rounds: int, passing: Passing = lambda rounds: None) -> Probe:
    own = assembly.experiment.client.lr
    ended: dict[tuple[float, float], Any] = {}
    trials: list[Trial] = []

    def tried(alpha: float, rate: float) -> Trial:
        trial, ended[alpha, rate] = _trial(assembly, alpha, rate, rounds, passing)
        trials.append(trial)
        return trial

    for rate in (own * factor for factor in _DESCENT):
        at_rate = [tried(alpha, rate) for alpha in ALPHAS]
        if any(trial.losses for trial in at_rate):
            break
    else:
        raise Diverged(
            f"FedCM diverged within {rounds} rounds with every α and every η_l from {own / 9:.3g} to {own:g}"
        )
    best = best_of(trials)
    for alpha, rate in variations(best):
        if rate < own or best.client_lr == own:
            tried(alpha, rate)
    won = best_of(trials)
    runner, server = _with_alpha(assembly.runner, won.alpha), ended[won.alpha, won.client_lr]
    round = Round(rounds, won.client_lr, 1.0, 0, assembly.plan.population, math.nan)
    found = diagnose(runner, LocalExecutor(runner).states, server, round, most=_CLIENTS)
    finite = {name: value for name, value in found.items() if value is not None}
    if len(finite) < len(found):
        raise Diverged(f"clients diverge in their local steps with η_l = {won.client_lr:.3g}, the best that was tried")
    start = _loss(runner, assembly.problem.initial(), _listened_to(assembly))
    return Probe(rounds, start, tuple(trials), finite, _smoothness(runner, server.params, round))


def _trial(assembly: Assembly, alpha: float, rate: float, rounds: int, passing: Passing) -> tuple[Trial, Any]:
    marks = {int(mark) for mark in np.linspace(max(rounds / 2, 1), rounds, _MARKS).round()}
    clients = _listened_to(assembly)
    losses, server, done = {}, None, 0
    try:
        for server in _rounds(assembly, alpha, rate, rounds):
            done += 1
            if done in marks:
                losses[done] = _loss(assembly.runner, server.params, clients)
            passing(1)
    except Diverged:
        passing(rounds - done)
        losses = {}
    return Trial(alpha, rate, losses), server


class _Untested:
    """An executor that trains and evaluates nothing."""

    def __init__(self, executor: LocalExecutor) -> None:
        self.run_round = executor.run_round

    def evaluate(self, params: Vector) -> Score | None:
        return None


def _rounds(assembly: Assembly, alpha: float, rate: float, rounds: int) -> Iterator[Any]:
    runner, client = _with_alpha(assembly.runner, alpha), assembly.experiment.client
    schedule = Schedule(rate, client.lr_decay, assembly.experiment.server.lr)
    plan = replace(assembly.plan, schedule=schedule, rounds=rounds)
    server = runner.algorithm.init_server(assembly.problem.initial())
    for done in training(runner.algorithm, _Untested(LocalExecutor(runner)), plan, server):
        yield done.server


def _with_alpha(runner: ClientRunner, alpha: float) -> ClientRunner:
    return replace(runner, algorithm=FedCM(alpha=alpha))


def _listened_to(assembly: Assembly) -> list[int]:
    """As many clients, drawn, as have the examples that a loss is taken over."""
    order = generator(assembly.plan.seed, Purpose.DIAGNOSIS).permutation(assembly.plan.population)
    enough = np.searchsorted(np.cumsum(assembly.runner.data.sizes(order[:_EXAMPLES])), _EXAMPLES) + 1
    return order[: int(enough)].tolist()


def _loss(runner: ClientRunner, params: Vector, clients: list[int]) -> float:
    """The mean of clients' losses, of a large client's on its first examples."""
    problem = runner.problem
    model = problem.bind(params).eval()
    try:
        with one_thread(), torch.no_grad(), torch.random.fork_rng(devices=[]), problem.arithmetic():
            examples = (runner.data.client(client) for client in clients)
            losses = [problem.loss(model(own.features[:PIECE]), own.labels[:PIECE]).item() for own in examples]
    finally:
        model.train()
    loss = float(np.mean(losses))
    if not math.isfinite(loss):
        raise Diverged(f"the loss over clients became {loss}")
    return loss


def _smoothness(runner: ClientRunner, params: Vector, round: Round) -> float:
    """‖g_i(y) − g_i(x)‖ / ‖y − x‖ from the start to the end of FedAvg's local steps; the median of a few clients."""
    runner, ratios = _with_alpha(runner, 1.0), []
    sent = runner.algorithm.broadcast(runner.algorithm.init_server(params))
    with one_thread(), torch.no_grad(), torch.random.fork_rng(devices=[]):
        for client in range(min(_SMOOTHNESS, runner.data.population)):
            done = runner.run(client, sent, runner.algorithm.init_client(params), round)
            report: Any = done.report
            moved = report.direction * (round.client_lr * done.steps)
            at = runner.problem.full_gradient(runner.data.client(client))
            ratios.append(((at(params - moved) - at(params)).norm() / moved.norm().clamp(min=1e-30)).item())
    return float(np.median(ratios))
