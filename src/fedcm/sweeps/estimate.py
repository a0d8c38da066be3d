"""Estimate the time of a sweep before it runs: time a few steps of each kind of run, then calculate.

round = mean clients × steps per client × seconds per step + evaluation, if one is due
run   = remaining rounds × round
sweep = sum over runs / cores
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedcm.config.experiment import to_table
from fedcm.core.evaluation import EVALUATED_SETS, EvaluatedSet, list_pieces, tally_piece
from fedcm.data.dataset import Dataset
from fedcm.data.federated import ArrayData
from fedcm.runs.build import TrainingSetup, build
from fedcm.runs.timing import measure_shortest_time
from fedcm.sweeps.tasks import SweepTask
from fedcm.system.hardware import use_one_thread

_ROUNDS = 100  # rounds whose cohorts are drawn for the mean number of clients
_TRIALS, _SECONDS = 3, 5.0  # how often, or how long, a step is timed


class Estimate(NamedTuple):
    """The estimated time of a task on one core."""

    task: SweepTask
    seconds_per_round: float
    seconds: float  # for the remaining rounds


class _Speed(NamedTuple):
    seconds_per_step: float
    seconds_per_piece: float  # of the test data


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
        estimates.append(Estimate(task, per_round, per_round * (task.rounds - task.rounds_done)))
    return estimates


def to_plan(estimates: Sequence[Estimate], cores: int) -> dict[str, Any]:
    """Return the estimates for JSON: one row per run, and the time of all on these cores."""
    rows = [
        {"run": e.task.run.name, "state": e.task.outcome, "rounds": e.task.rounds, "done": e.task.rounds_done}
        | {"seconds_a_round": e.seconds_per_round, "seconds": e.seconds}
        for e in estimates
    ]
    return {"runs": rows, "cores": cores, "seconds": sum(e.seconds for e in estimates) / cores}


def _measure_speed(setup: TrainingSetup) -> _Speed:
    problem, data, batch_size = setup.problem, setup.runner.data, setup.runner.local_work.batch_size
    batch = problem.collate(data.client(0).slice(0, batch_size))
    with use_one_thread():
        step = measure_shortest_time(lambda: problem.gradient(batch)(problem.initial_params), _TRIALS, _SECONDS)
        piece = 0.0
        which: EvaluatedSet = "test" if data.test_size else "validation"
        if list_pieces(data, which):
            piece = measure_shortest_time(
                lambda: tally_piece(problem, problem.initial_params, data, 0, which), _TRIALS, _SECONDS
            )
    return _Speed(step, piece)


def estimate_training(setup: TrainingSetup) -> float:
    """Return the estimated seconds of one round on one core, without evaluation."""
    return _count_steps_per_round(setup) * _measure_speed(setup).seconds_per_step


def _estimate_round(setup: TrainingSetup, speed: _Speed) -> float:
    pieces = sum(len(list_pieces(setup.runner.data, which)) for which in EVALUATED_SETS)
    evaluation = pieces * speed.seconds_per_piece / setup.plan.evaluate_every
    return _count_steps_per_round(setup) * speed.seconds_per_step + evaluation


def _count_steps_per_round(setup: TrainingSetup) -> float:
    runner, plan = setup.runner, setup.plan
    cohorts = enumerate(plan.draw_cohort(round).reporting for round in range(_ROUNDS))
    return float(np.mean([runner.count_steps(cohort, round).sum() if len(cohort) else 0 for round, cohort in cohorts]))
