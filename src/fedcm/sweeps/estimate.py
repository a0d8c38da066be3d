"""Estimate the time of a sweep before it runs: time a few steps of each kind of run, then calculate.

round = mean clients × steps per client × seconds per step + evaluation, if one is due
run   = remaining rounds × round
sweep = sum over runs / cores
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedcm.config.experiment import to_table
from fedcm.core.evaluation import list_pieces, tally_piece
from fedcm.data.dataset import Dataset, Examples
from fedcm.data.federated import ArrayData
from fedcm.runs.build import TrainingSetup, build
from fedcm.sweeps.tasks import SweepTask
from fedcm.system.hardware import use_one_thread

_ROUNDS = 100  # rounds whose cohorts are drawn for the mean number of clients
_TRIALS = 3


class Estimate(NamedTuple):
    """The estimated time of a task on one core."""

    task: SweepTask
    seconds_per_round: float
    seconds: float  # for the remaining rounds


class _Speed(NamedTuple):
    step: float  # seconds per step
    piece: float  # seconds per evaluated piece of the test data


def estimate_tasks(tasks: Sequence[SweepTask], data_dir: Path | None) -> list[Estimate]:
    """Return an estimate for every task; each kind of step is timed once."""
    speeds: dict[str, _Speed] = {}
    estimates: list[Estimate] = []
    datasets: dict[str, Dataset | None] = {}
    for task in tasks:
        if task.has_ended:
            estimates.append(Estimate(task, 0.0, 0.0))
            continue
        experiment = task.run.experiment.without_autotune()
        setup = build(experiment, data_dir, data=datasets.get(experiment.data.source))
        data = setup.runner.data
        datasets[experiment.data.source] = data.dataset if isinstance(data, ArrayData) else None
        kind = str([to_table(experiment)[key] for key in ("model", "engine", "data")] + [experiment.client.batch_size])
        if kind not in speeds:
            speeds[kind] = _measure_speed(setup)
        per_round = _estimate_round(setup, speeds[kind])
        estimates.append(Estimate(task, per_round, per_round * (task.rounds - task.done)))
    return estimates


def _measure_speed(setup: TrainingSetup) -> _Speed:
    problem, data, batch_size = setup.problem, setup.runner.data, setup.runner.local_work.batch_size
    batch = Examples(*[part[:batch_size] for part in data.client(0)])
    with use_one_thread():
        step = _time(lambda: problem.gradient(batch)(problem.initial_params))
        piece = _time(lambda: tally_piece(problem, problem.initial_params, data, 0)) if data.test_size else 0.0
    return _Speed(step, piece)


def estimate_training(setup: TrainingSetup) -> float:
    """Return the estimated seconds of one round on one core, without evaluation."""
    return _count_steps_per_round(setup) * _measure_speed(setup).step


def _estimate_round(setup: TrainingSetup, speed: _Speed) -> float:
    evaluation = len(list_pieces(setup.runner.data)) * speed.piece / setup.plan.evaluate_every
    return _count_steps_per_round(setup) * speed.step + evaluation


def _count_steps_per_round(setup: TrainingSetup) -> float:
    runner, plan = setup.runner, setup.plan
    cohorts = [plan.participation.cohort(plan.population, plan.seed, round) for round in range(_ROUNDS)]
    return float(np.mean([runner.count_steps(cohort).sum() if len(cohort) else 0 for cohort in cohorts]))


def _time(action: Callable[[], Any]) -> float:
    action()
    times = []
    for _ in range(_TRIALS):
        started = time.perf_counter()
        action()
        times.append(time.perf_counter() - started)
        if sum(times) > 5:
            break
    return min(times)
