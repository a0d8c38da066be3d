"""Short trials of FedCM on an experiment's data, for `fedcm.advise.advice`: same start, same cohorts, same minibatches.

First with a few α at the experiment's η_l, then with the best of them at a third and at three times that rate, there
with a third of it too. The loss is over clients' training data, never the test set.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import torch

from fedcm.advise.advice import ALPHAS, Probe, Setting, Trial, best_of, rounded, variations
from fedcm.algorithms.fedcm import FedCM
from fedcm.core.algorithm import Round, Vector
from fedcm.core.evaluation import Score, evaluation_mode
from fedcm.core.round_loop import run_rounds
from fedcm.core.schedule import Schedule
from fedcm.data.dataset import Examples
from fedcm.errors import Diverged, UserError
from fedcm.executors.client_runner import ClientRunner
from fedcm.executors.diagnosis import diagnose
from fedcm.executors.local import LocalExecutor
from fedcm.rng import Purpose, make_generator
from fedcm.runs.assembly import Assembly
from fedcm.sweeps.estimate import seconds_of_training
from fedcm.system.threads import one_thread

FEWEST = 10  # rounds of a trial, unless asked for fewer
TRIALS = len(ALPHAS) + 3
_MARKS = 6  # losses along a trial
_EXAMPLES, _LISTENED = 2000, 20  # that a loss is taken over, of at least so many clients where there are
_CLIENTS = 100  # whose gradients the diagnosis takes
_SMOOTHNESS = 5  # clients for the smoothness
_DRAW = Purpose.DIAGNOSIS
_DESCENT = (1.0, 1 / 3, 1 / 9)  # of η_l, where everything diverges
_GROWN = 10.0  # times the loss before any round: a trial that never comes below it has diverged

Passing = Callable[[int], None]  # told of every round that is done
Asked = Callable[[], bool]


def describe_setting(assembly: Assembly, alpha: float | None) -> Setting:
    """`alpha` is the experiment's own, where it has one."""
    plan, client, runner = assembly.plan, assembly.experiment.client, assembly.runner
    sizes = [
        len(plan.participation.cohort(plan.population, plan.seed, index)) for index in range(min(plan.rounds, 500))
    ]
    present = [size for size in sizes if size]
    steps = runner.steps(np.arange(min(plan.population, 10_000)))
    return Setting(
        rounds=plan.rounds,
        population=plan.population,
        cohort=float(np.mean(sizes)),
        inverse_cohort=float(np.mean([1 / size for size in present])) if present else 1.0,
        empty=float(np.mean([size == 0 for size in sizes])),
        steps=float(steps.mean()),
        steps_least=int(steps.min()),
        steps_most=int(steps.max()),
        by_examples=runner.weigh_by_examples,
        weight_decay=client.weight_decay,
        decay_in_step=client.weight_decay_at == "step",
        alpha=alpha,
    )


def count_affordable_rounds(assembly: Assembly, seconds: float) -> int:
    """Rounds a trial, so that all of them take about so long."""
    rounds = assembly.plan.rounds
    each = seconds_of_training(assembly)
    return min(max(int(min(seconds / TRIALS / max(each, 1e-9), rounds)), FEWEST), rounds)


def probe(
    assembly: Assembly, rounds: int, passing: Passing = lambda rounds: None, stop_requested: Asked = lambda: False
) -> Probe:
    _reject_empty(assembly, rounds)
    work = _Work(assembly, rounds, passing, stop_requested, _listened_to(assembly))
    start = _loss(work, assembly.problem.initial())
    own = assembly.experiment.client.lr
    ended: dict[tuple[float, float], Any] = {}
    trials: list[Trial] = []

    def tried(alpha: float, rate: float) -> Trial:
        trial, ended[alpha, rate] = _trial(work, alpha, rate, start)
        trials.append(trial)
        return trial

    diverged: list[float] = []
    for rate in (rounded(own * factor) for factor in _DESCENT):
        at_rate = [tried(alpha, rate) for alpha in ALPHAS]
        if any(trial.losses for trial in at_rate):
            break
        diverged.append(rate)
    else:
        least = min(diverged)
        raise Diverged(f"FedCM diverged within {rounds} rounds with every α and every η_l from {least:.3g} to {own:g}")
    for alpha, rate in variations(best_of(trials)):
        if not any(math.isclose(rate, each, rel_tol=1e-3) for each in diverged):
            tried(alpha, rate)
    won = best_of(trials)
    runner, server = _with_alpha(assembly.runner, won.alpha), ended[won.alpha, won.client_lr]
    lr = _schedule(assembly, won.client_lr).client(rounds)
    round = Round(rounds, lr, 1.0, 0, assembly.plan.population, math.nan)
    states = LocalExecutor(runner).states
    found = diagnose(runner, states, server, round, most=_CLIENTS, stop_requested=stop_requested)
    finite = {name: value for name, value in found.items() if value is not None}
    if len(finite) < len(found):
        raise Diverged(f"clients diverge in their local steps with η_l = {won.client_lr:.3g}, the best that was tried")
    return Probe(rounds, start, tuple(trials), finite, smoothness(runner, server, round))


def _reject_empty(assembly: Assembly, rounds: int) -> None:
    plan = assembly.plan
    if not any(len(plan.participation.cohort(plan.population, plan.seed, index)) for index in range(rounds)):
        raise UserError(
            f"a probe needs clients, and nobody takes part in the first {rounds} rounds; give more with --rounds, or a "
            "larger participation.probability"
        )


@final
@dataclass(frozen=True)
class _Work:
    """What all trials have in common."""

    assembly: Assembly
    rounds: int
    passing: Passing
    stop_requested: Asked
    listened: list[Examples]

    @property
    def marks(self) -> set[int]:
        return {int(mark + 0.5) for mark in np.linspace(max(self.rounds / 2, 1), self.rounds, _MARKS)}


def _trial(work: _Work, alpha: float, rate: float, start: float) -> tuple[Trial, Any]:
    """One short run. It has diverged if a number is not finite, or if its losses stay far above the first."""
    losses, server, done = {}, None, 0
    try:
        for server in _rounds(work, alpha, rate):
            done += 1
            if done in work.marks:
                losses[done] = _loss(work, server.params)
            work.passing(1)
    except Diverged:
        work.passing(work.rounds - done)
        losses = {}
    if losses and min(losses.values()) > _GROWN * start > 0:
        losses = {}
    return Trial(alpha, rate, losses), server


class _Untested:
    """An executor that trains and evaluates nothing."""

    def __init__(self, executor: LocalExecutor) -> None:
        self.run_round = executor.run_round

    def evaluate(self, params: Vector) -> Score | None:
        return None


def _rounds(work: _Work, alpha: float, rate: float) -> Iterator[Any]:
    runner = _with_alpha(work.assembly.runner, alpha)
    plan = replace(work.assembly.plan, schedule=_schedule(work.assembly, rate), rounds=work.rounds)
    server = runner.algorithm.init_server(work.assembly.problem.initial())
    executor = LocalExecutor(runner, stop_requested=work.stop_requested)
    for done in run_rounds(runner.algorithm, _Untested(executor), plan, server):
        yield done.server


def _schedule(assembly: Assembly, rate: float) -> Schedule:
    return Schedule(rate, assembly.experiment.client.lr_decay, assembly.experiment.server.lr)


def _with_alpha(runner: ClientRunner, alpha: float) -> ClientRunner:
    return replace(runner, algorithm=FedCM(alpha=alpha))


def _listened_to(assembly: Assembly) -> list[Examples]:
    """Clients, drawn, and of a large one some of its examples, drawn too."""
    data, population, draw = assembly.runner.data, assembly.plan.population, make_generator(assembly.plan.seed, _DRAW)
    order = draw.permutation(population)
    most = math.ceil(_EXAMPLES / min(population, _LISTENED))
    sizes = np.minimum(data.sizes(order[:_EXAMPLES]), most)
    enough = int(np.searchsorted(np.cumsum(sizes), _EXAMPLES)) + 1
    listened = []
    for client in order[:enough].tolist():
        own = data.client(client)
        if own.size > most:
            drawn = torch.from_numpy(np.sort(draw.choice(own.size, most, replace=False))).to(own.labels.device)
            own = Examples(own.features[drawn], own.labels[drawn])
        listened.append(own)
    return listened


def _loss(work: _Work, params: Vector) -> float:
    """The mean of these clients' losses."""
    problem = work.assembly.problem
    with one_thread(), evaluation_mode(problem, params) as model:
        losses = [problem.loss(model(own.features), own.labels).item() for own in work.listened]
    loss = float(np.mean(losses))
    if not math.isfinite(loss):
        raise Diverged(f"the loss over clients became {loss}")
    return loss


def smoothness(runner: ClientRunner, server: Any, round: Round) -> float | None:
    """‖g_i(y) − g_i(x)‖ / ‖y − x‖ from the start to the end of local steps; the median of a few clients drawn."""
    sent, params, ratios = runner.algorithm.broadcast(server), server.params, []
    clients = make_generator(runner.seed, _DRAW, round.index).permutation(runner.data.population)[:_SMOOTHNESS]
    with one_thread(), torch.no_grad(), torch.random.fork_rng(devices=[]):
        for client in clients.tolist():
            done = runner.run(client, sent, runner.algorithm.init_client(params), round)
            report: Any = done.report
            moved = report.direction * (round.client_lr * done.steps)
            at = runner.problem.full_gradient(runner.data.client(client))
            ratios.append(((at(params - moved) - at(params)).norm() / moved.norm().clamp(min=1e-30)).item())
    found = float(np.median(ratios))
    return found if math.isfinite(found) else None
