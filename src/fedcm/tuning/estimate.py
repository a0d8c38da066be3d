"""Estimate the time of a tuning before it runs, from a few steps at the ends of each space."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedcm.runs.folder import RunFolder
from fedcm.sweeps.estimate import estimate_tasks
from fedcm.sweeps.grid import GridRun
from fedcm.sweeps.tasks import SweepTask
from fedcm.tuning.plan import TuningPlan
from fedcm.tuning.space import Space


class TuningEstimate(NamedTuple):
    """The runs of one algorithm and their time on one core."""

    algorithm: str
    space: Space
    trials: int
    seeds: int
    seconds: float  # of all runs, if none is pruned


def estimate_tuning(plan: TuningPlan, folder: Path, data_dir: Path | None) -> list[TuningEstimate]:
    """Return an estimate for every algorithm; pruning makes the tuning faster.

    Raises:
        UserError: If an experiment cannot work.
    """
    estimates = []
    for one in plan.algorithms:
        tasks = [SweepTask(GridRun("example", experiment), RunFolder(folder)) for experiment in one.list_examples()]
        seconds = [estimate.seconds for estimate in estimate_tasks(tasks, data_dir)]
        runs = plan.trials + plan.seeds
        mean = sum(seconds) / len(seconds)
        estimates.append(TuningEstimate(one.algorithm, one.space, plan.trials, plan.seeds, runs * mean))
    return estimates


def to_tuning_table(estimates: Sequence[TuningEstimate], cores: int) -> dict[str, Any]:
    """Return the estimates for JSON: one row per algorithm, and the time of all on these cores."""
    rows = [
        {"algorithm": one.algorithm, "space": {path: str(domain) for path, domain in one.space.items()}}
        | {"trials": one.trials, "seeds": one.seeds, "seconds": one.seconds}
        for one in estimates
    ]
    return {"algorithms": rows, "cores": cores, "seconds": sum(one.seconds for one in estimates) / cores}
