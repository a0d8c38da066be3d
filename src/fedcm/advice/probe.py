"""Run short trials of FedCM on an experiment's data, for `fedcm.advice.suggestion`.

All trials have the same initial parameters, cohorts and minibatches. First, a few α are tried at the experiment's η_l.
Then the best α is tried at a third of that rate and at three times that rate; at the larger rate, a third of the α is
tried too. The loss is over the validation data if the experiment has any, else over the clients' training data; it is
never over the test data.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import torch

from fedcm.advice.suggestion import (
    ALPHAS,
    ExperimentProfile,
    ProbeResult,
    Trial,
    find_best_trial,
    list_further_pairs,
    round_rate,
)
from fedcm.algorithms.client_momentum.fedcm import FedCM
from fedcm.core.algorithm import Round, Vector
from fedcm.core.evaluation import Score, combine_tallies, evaluation_mode, list_pieces, tally_piece
from fedcm.core.round_loop import run_rounds
from fedcm.data.dataset import Examples
from fedcm.errors import Diverged, UserError
from fedcm.executors.client_runner import ClientRunner
from fedcm.executors.diagnosis import diagnose
from fedcm.executors.local import LocalExecutor
from fedcm.rng import Purpose, make_generator
from fedcm.runs.build import TrainingSetup
from fedcm.sweeps.estimate import estimate_training
from fedcm.system.callbacks import StopRequested
from fedcm.system.formatting import format_count
from fedcm.system.hardware import use_one_thread

_MIN_ROUNDS = 10  # rounds of a trial, if they are chosen by time
TRIALS = len(ALPHAS) + 3
_LOSSES = 6  # per trial, in the second half of its rounds
_EXAMPLES, _LOSS_CLIENTS = 2000, 20  # a loss is over this number of examples, of at least this number of clients
_GRADIENT_CLIENTS = 100  # whose gradients the diagnosis uses
_SMOOTHNESS_CLIENTS = 5
_RATE_FACTORS = (1.0, 1 / 3, 1 / 9)  # factors of η_l to try while all trials diverge
_DIVERGENCE = 10.0  # a trial whose loss is always above this multiple of the initial loss has diverged

OnRounds = Callable[[int], None]  # called with the number of rounds that are done or skipped


def profile_experiment(setup: TrainingSetup, alpha: float | None) -> ExperimentProfile:
    """Return the properties of an experiment that the advice depends on.

    Args:
        setup: The experiment.
        alpha: The experiment's own α; None if its algorithm is not FedCM.
    """
    plan, client, runner = setup.plan, setup.experiment.client, setup.runner
    sizes = [len(plan.draw_cohort(index).reporting) for index in range(min(plan.rounds, 500))]
    non_empty = [size for size in sizes if size]
    steps = runner.count_steps(np.arange(min(plan.population, 10_000)), round=0)
    return ExperimentProfile(
        rounds=plan.rounds,
        population=plan.population,
        cohort_size=float(np.mean(sizes)),
        inverse_cohort=float(np.mean([1 / size for size in non_empty])) if non_empty else 1.0,
        empty=float(np.mean([size == 0 for size in sizes])),
        steps=float(runner.sum_step_factors(steps).mean()),
        steps_least=int(steps.min()),
        steps_most=int(steps.max()),
        by_examples=runner.weigh_by_examples,
        weight_decay=client.weight_decay,
        decay_in_step=client.weight_decay_at == "step",
        alpha=alpha,
    )


def count_affordable_rounds(setup: TrainingSetup, seconds: float) -> int:
    """Return the number of rounds per trial for which all trials take about `seconds`; at least 10."""
    rounds = setup.plan.rounds
    round_seconds = estimate_training(setup)
    return min(max(int(min(seconds / TRIALS / max(round_seconds, 1e-9), rounds)), _MIN_ROUNDS), rounds)


def probe(
    setup: TrainingSetup,
    rounds: int,
    on_rounds: OnRounds = lambda rounds: None,
    stop_requested: StopRequested = lambda: False,
) -> ProbeResult:
    """Run the trials and diagnose the best one.

    Args:
        setup: The experiment.
        rounds: Rounds per trial.
        on_rounds: Called with the number of rounds that are done, for progress.
        stop_requested: `Stopped` is raised when it returns True.

    Raises:
        UserError: If all cohorts of these rounds are empty.
        Diverged: If every trial diverged, or the local steps after the best one do.
        Stopped: If `stop_requested` returns True.
    """
    if setup.problem.personal_size:
        raise UserError("a model with personal parameters cannot be probed; leave model.personal out")
    _reject_empty(setup, rounds)
    validated = setup.runner.data.validation_size > 0
    task = _ProbeTask(setup, rounds, on_rounds, stop_requested, [] if validated else _draw_examples(setup))
    initial_loss = _compute_loss(task, setup.problem.initial_params)
    own_rate = setup.experiment.client.lr
    servers: dict[tuple[float, float], Any] = {}  # at the end of each trial
    trials: list[Trial] = []

    def run_trial(alpha: float, rate: float) -> Trial:
        trial, servers[alpha, rate] = _run_trial(task, alpha, rate, initial_loss)
        trials.append(trial)
        return trial

    diverged: list[float] = []
    for rate in (round_rate(own_rate * factor) for factor in _RATE_FACTORS):
        trials_at_rate = [run_trial(alpha, rate) for alpha in ALPHAS]
        if any(trial.losses for trial in trials_at_rate):
            break
        diverged.append(rate)
    else:
        raise Diverged(
            f"FedCM diverged within {format_count(rounds, 'round')} with every α and every η_l from "
            f"{min(diverged):.3g} to {own_rate:g}"
        )
    for alpha, rate in list_further_pairs(find_best_trial(trials)):
        if not any(math.isclose(rate, known, rel_tol=1e-3) for known in diverged):
            run_trial(alpha, rate)
    best = find_best_trial(trials)
    runner, server = _with_alpha(setup.runner, best.alpha), servers[best.alpha, best.client_lr]
    schedule = replace(setup.plan.schedule, client_lr=best.client_lr)
    client_lr, server_lr = schedule.client_lr_at(rounds), schedule.server_lr_at(rounds)
    round = Round(rounds, client_lr, server_lr, 0, setup.plan.population, math.nan)
    states = LocalExecutor(runner).states
    values = diagnose(runner, states, server, round, max_gradients=_GRADIENT_CLIENTS, stop_requested=stop_requested)
    finite = {name: value for name, value in values.items() if value is not None}
    if len(finite) < len(values):
        raise Diverged(f"clients diverge in their local steps with η_l = {best.client_lr:.3g}, the best that was tried")
    smoothness = measure_smoothness(runner, server, round)
    return ProbeResult(
        rounds, initial_loss, tuple(trials), finite, smoothness, "validation" if validated else "training"
    )


def _reject_empty(setup: TrainingSetup, rounds: int) -> None:
    plan = setup.plan
    if not any(len(plan.draw_cohort(index).reporting) for index in range(rounds)):
        raise UserError(
            f"a probe needs clients, but the cohorts of the first {rounds} rounds are empty; try more rounds, or raise "
            "participation.probability"
        )


@final
@dataclass(frozen=True)
class _ProbeTask:
    """What all trials have in common."""

    setup: TrainingSetup
    rounds: int
    on_rounds: OnRounds
    stop_requested: StopRequested
    examples: list[Examples]  # of the clients over which the loss is computed; empty with validation data

    @property
    def loss_rounds(self) -> set[int]:
        """The numbers of rounds after which the loss is computed."""
        return {int(count + 0.5) for count in np.linspace(max(self.rounds / 2, 1), self.rounds, _LOSSES)}


def _run_trial(task: _ProbeTask, alpha: float, rate: float, initial_loss: float) -> tuple[Trial, Any]:
    """Run one trial. It has diverged if a number is not finite, or if its losses stay far above the initial one."""
    losses, server, done = {}, None, 0
    try:
        for server in _run_rounds(task, alpha, rate):
            done += 1
            if done in task.loss_rounds:
                losses[done] = _compute_loss(task, server.params)
            task.on_rounds(1)
    except Diverged:
        task.on_rounds(task.rounds - done)
        losses = {}
    if losses and min(losses.values()) > _DIVERGENCE * initial_loss > 0:
        losses = {}
    return Trial(alpha, rate, losses), server


class _ExecutorWithoutTest:
    """An executor that skips the evaluation."""

    def __init__(self, executor: LocalExecutor) -> None:
        self.run_round = executor.run_round

    def evaluate(self, params: Vector) -> dict[str, Score]:
        return {}


def _run_rounds(task: _ProbeTask, alpha: float, rate: float) -> Iterator[Any]:
    """Yield the server state after each round of a trial."""
    runner = _with_alpha(task.setup.runner, alpha)
    schedule = replace(task.setup.plan.schedule, client_lr=rate)  # as in the first rounds of the whole run
    plan = replace(task.setup.plan, schedule=schedule, rounds=task.rounds, stop=None, evaluates_clients=False)
    server = runner.algorithm.init_server(task.setup.problem.initial_params)
    executor = LocalExecutor(runner, stop_requested=task.stop_requested)
    for done in run_rounds(runner.algorithm, _ExecutorWithoutTest(executor), plan, server):
        yield done.server


def _with_alpha(runner: ClientRunner, alpha: float) -> ClientRunner:
    return replace(runner, algorithm=FedCM(alpha=alpha))


def _draw_examples(setup: TrainingSetup) -> list[Examples]:
    """Draw the clients over which losses are computed, and for a large client some of its examples."""
    data, population = setup.runner.data, setup.plan.population
    generator = make_generator(setup.plan.seed, Purpose.DIAGNOSIS)
    order = generator.permutation(population)
    most = math.ceil(_EXAMPLES / min(population, _LOSS_CLIENTS))
    sizes = np.minimum(data.sizes(order[:_EXAMPLES]), most)
    clients = int(np.searchsorted(np.cumsum(sizes), _EXAMPLES)) + 1
    examples = []
    for client in order[:clients].tolist():
        own = data.client(client)
        if own.size > most:
            drawn = torch.from_numpy(np.sort(generator.choice(own.size, most, replace=False))).to(own.device)
            own = own.select(drawn)
        examples.append(setup.problem.collate(own))
    return examples


def _compute_loss(task: _ProbeTask, params: Vector) -> float:
    """Return the loss on the validation data; without any, the mean of the clients' losses on training data."""
    problem, data = task.setup.problem, task.setup.runner.data
    if not task.examples:
        with use_one_thread():
            pieces = [tally_piece(problem, params, data, k, "validation") for k in list_pieces(data, "validation")]
        loss, where = combine_tallies(pieces).loss, "on the validation data"
    else:
        with use_one_thread(), evaluation_mode(problem, params) as model:
            losses = [problem.loss(problem.call(model, own), own.labels).item() for own in task.examples]
        loss, where = float(np.mean(losses)), "over clients"
    if not math.isfinite(loss):
        raise Diverged(f"the loss {where} became {loss}")
    return loss


def measure_smoothness(runner: ClientRunner, server: Any, round: Round) -> float | None:
    """Measure L = ‖g_i(y) − g_i(x)‖ / ‖y − x‖ from the start x to the end y of local steps.

    Returns:
        The median over a few clients, drawn at random; None if it is not finite.
    """
    sent, params, ratios = runner.algorithm.broadcast(server), server.params, []
    generator = make_generator(runner.seed, Purpose.DIAGNOSIS, round.index)
    clients = generator.permutation(runner.data.population)[:_SMOOTHNESS_CLIENTS]
    with use_one_thread(), torch.no_grad(), torch.random.fork_rng(devices=[]):
        for client in clients.tolist():
            done = runner.run_client(client, sent, runner.initial_state, round)
            report: Any = done.report
            steps = float(runner.sum_step_factors(np.array([done.steps]))[0])
            moved = report.direction * (round.client_lr * steps)
            gradient = runner.problem.full_gradient(runner.data.client(client))
            change = gradient(params - moved) - gradient(params)
            ratios.append((change.norm() / moved.norm().clamp(min=1e-30)).item())
    median = float(np.median(ratios))
    return median if math.isfinite(median) else None
