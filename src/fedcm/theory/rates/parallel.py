"""Measure the points of experiments in parallel, one process per core.

The result of a point does not depend on the process that measures it.
"""

import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import torch

from fedcm.system.hardware import count_physical_cores
from fedcm.system.processes import watch_parent
from fedcm.theory.rates.experiment import RateExperiment
from fedcm.theory.rates.measurement import PointResult, RateRow, estimate_cost, make_rows, measure_point
from fedcm.theory.rates.plan import select_experiments

OnPointDone = Callable[[str, float], object]  # called with the experiment's name and the point's estimated cost


def measure_experiments(
    experiments: Sequence[RateExperiment], quick: bool, on_point_done: OnPointDone
) -> list[RateRow]:
    """Measure all points of all experiments.

    Args:
        experiments: Experiments as `select_experiments` returns them.
        quick: Whether they were selected with `quick`; workers select them again by name.
        on_point_done: Called after every point, in the order of the experiments.

    Returns:
        One row per experiment and algorithm.
    """
    tasks = [(experiment.name, quick, number) for experiment in experiments for number in range(len(experiment.points))]
    workers = min(count_physical_cores(), len(tasks))
    rows = []
    with ProcessPoolExecutor(workers, get_context("spawn"), _init_worker, (os.getpid(),)) as pool:
        results = pool.map(_measure_task, tasks)
        for experiment in experiments:
            measured = []
            for point in experiment.points:
                measured.append(next(results))
                on_point_done(experiment.name, estimate_cost(point))
            rows += make_rows(experiment, measured)
    return rows


def _init_worker(parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends a worker at once, without a traceback
    watch_parent(parent, lambda: os._exit(1))
    torch.set_num_threads(1)


def _measure_task(task: tuple[str, bool, int]) -> dict[str, PointResult]:
    """Measure one point; only the experiment's name is sent, since a problem with its data may be large."""
    name, quick, number = task
    (experiment,) = select_experiments([name], quick)
    return measure_point(experiment, number)
