"""What a series would cost, before it is run: a few steps of each kind of run are timed, the rest is arithmetic.

a round  = clients on average × steps a client × seconds a step + evaluation, where one is due
a run    = the rounds that are left × a round
in all   = the sum over runs / the cores that work at it
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedcm.config.experiment import Experiment, to_table
from fedcm.core.evaluation import list_pieces, tally_piece
from fedcm.data.dataset import Dataset, Examples
from fedcm.data.federated import ArrayData
from fedcm.runs.assembly import Assembly, assemble
from fedcm.sweeps.run_parallel import SweepTask
from fedcm.system.threads import one_thread

_ROUNDS = 100  # whose cohorts are drawn to know how many take part
_TRIALS = 3


class Estimate(NamedTuple):
    task: SweepTask
    seconds_a_round: float  # on one core
    seconds: float  # for the rounds that are left, on one core


class _Speed(NamedTuple):
    step: float  # seconds
    piece: float  # seconds to evaluate one


def estimate_tasks(tasks: Sequence[SweepTask], data_dir: Path | None) -> list[Estimate]:
    """An estimate for every task, in order; each kind of step is timed once."""
    speeds: dict[str, _Speed] = {}
    estimates: list[Estimate] = []
    datasets: dict[str, Dataset | None] = {}
    for task in tasks:
        if task.over:
            estimates.append(Estimate(task, 0.0, 0.0))
            continue
        experiment = without_trial(task.run.experiment)
        assembly = assemble(experiment, data_dir, datasets.get(experiment.data.source))
        data = assembly.runner.data
        datasets[experiment.data.source] = data.dataset if isinstance(data, ArrayData) else None
        kind = str([to_table(experiment)[key] for key in ("model", "engine", "data")] + [experiment.client.batch_size])
        if kind not in speeds:
            speeds[kind] = _measured(assembly)
        a_round = _seconds_a_round(assembly, speeds[kind])
        estimates.append(Estimate(task, a_round, a_round * (task.rounds - task.done)))
    return estimates


def without_trial(experiment: Experiment) -> Experiment:
    """What is left to trial is not tried here: one by one, as images are usually fastest."""
    fixed = {"stack": 1, "layout": "channels_last", "compile": "off"}
    left = {key: value for key, value in fixed.items() if getattr(experiment.engine, key) == "auto"}
    return experiment.model_copy(update={"engine": experiment.engine.model_copy(update=left)})


def _measured(assembly: Assembly) -> _Speed:
    problem, data, batch_size = assembly.problem, assembly.runner.data, assembly.runner.local_work.batch_size
    batch = Examples(*[part[:batch_size] for part in data.client(0)])
    with one_thread():
        step = _shortest(lambda: problem.gradient(batch)(problem.initial()))
        piece = _shortest(lambda: tally_piece(problem, problem.initial(), data, 0)) if data.test_size else 0.0
    return _Speed(step, piece)


def seconds_of_training(assembly: Assembly) -> float:
    """A round on one core, about, without evaluation."""
    return _steps_a_round(assembly) * _measured(assembly).step


def _seconds_a_round(assembly: Assembly, speed: _Speed) -> float:
    evaluation = len(list_pieces(assembly.runner.data)) * speed.piece / assembly.plan.evaluate_every
    return _steps_a_round(assembly) * speed.step + evaluation


def _steps_a_round(assembly: Assembly) -> float:
    runner, plan = assembly.runner, assembly.plan
    cohorts = [plan.participation.cohort(plan.population, plan.seed, round) for round in range(_ROUNDS)]
    return float(np.mean([runner.steps(cohort).sum() if len(cohort) else 0 for cohort in cohorts]))


def _shortest(action: Callable[[], Any]) -> float:
    action()
    times = []
    for _ in range(_TRIALS):
        started = time.perf_counter()
        action()
        times.append(time.perf_counter() - started)
        if sum(times) > 5:
            break
    return min(times)
