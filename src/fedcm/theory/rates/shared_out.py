"""The points of experiments over processes, one a core: what is found at a point does not depend on who measures it."""

import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import torch

from fedcm.system.processes import on_exit_of
from fedcm.system.threads import count_physical_cores
from fedcm.theory.rates.measure import Found, Row, chosen, cost, measure, rows_of
from fedcm.theory.rates.points import Experiment

Passing = Callable[[str, float], object]  # told of every point: its experiment, and what it cost


def measured(experiments: Sequence[Experiment], quick: bool, passing: Passing) -> list[Row]:
    tasks = [(experiment.name, quick, number) for experiment in experiments for number in range(len(experiment.points))]
    workers = min(count_physical_cores(), len(tasks))
    rows = []
    with ProcessPoolExecutor(workers, get_context("spawn"), _as_worker, (os.getpid(),)) as pool:
        found = pool.map(_at_point, tasks)
        for experiment in experiments:
            at_points = []
            for point in experiment.points:
                at_points.append(next(found))
                passing(experiment.name, cost(point))
            rows += rows_of(experiment, at_points)
    return rows


def _as_worker(parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it at once, and without a word
    on_exit_of(parent, lambda: os._exit(1))
    torch.set_num_threads(1)


def _at_point(task: tuple[str, bool, int]) -> dict[str, Found]:
    """By the experiment's name: a problem with all its data need not go from process to process."""
    name, quick, number = task
    (experiment,) = chosen([name], quick)
    return measure(experiment, number)
