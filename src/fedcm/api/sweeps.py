"""Many runs in Python: sweeps over settings, algorithms and seeds."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedcm.api.experiments import Overrides, PythonExperiment, check_count, list_overrides
from fedcm.api.runs import Run
from fedcm.config.bundled import find_experiment
from fedcm.config.experiment import to_table
from fedcm.config.sections import Experiment
from fedcm.config.toml_values import write_value
from fedcm.errors import Stopped, UserError
from fedcm.runs.archive import make_archive_path
from fedcm.runs.progress import say
from fedcm.sweeps.grid import GridRun, expand_grid, expand_table
from fedcm.sweeps.preflight import reject_impossible_runs
from fedcm.sweeps.run_parallel import run_parallel
from fedcm.sweeps.tasks import make_tasks, record_cells
from fedcm.system.signals import StopSignals
from fedcm.trackers import load_trackers


def sweep(
    experiment: Experiment | str | Path,
    over: Mapping[str, Sequence[Any]] | None = None,
    *,
    overrides: Overrides = (),
    algorithms: Sequence[str] = (),
    seeds: int | None = None,
    runs_dir: str | Path = "runs",
    data_dir: str | Path | None = None,
    jobs: int = 1,
    workers: int = 1,
    track: Sequence[str] = (),
    fresh: bool = False,
) -> list[Run]:
    """Run an experiment for every combination of settings, algorithms and seeds.

    Finished runs in `runs_dir` are reused and stopped ones are resumed. After Ctrl-C, call it again to continue.

    Args:
        experiment: An experiment, a TOML file (its `[grid]` counts), or the name of a bundled experiment.
        over: Settings and their values, such as `{"client.lr": [0.1, 0.3]}`.
        overrides: Settings to change in all runs.
        algorithms: Names of algorithms to compare, such as `["fedavg", "fedcm"]`; by default the experiment's.
        seeds: The number of seeds, counted from the experiment's own.
        runs_dir: The folder of runs.
        data_dir: Folder of prepared datasets.
        jobs: Runs in parallel.
        workers: Processes per run.
        track: Also log to "tensorboard", "mlflow" or "wandb".
        fresh: Run everything again; existing runs are moved to the archive.

    Returns:
        The runs, in the order of the grid; those that Ctrl-C stopped have the outcome "stopped".

    Raises:
        UserError: a setting is wrong, or a run failed.

    >>> import fedcm, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> runs = fedcm.sweep("demo", {"algorithm.alpha": [0.1, 0.3]}, overrides={"rounds": 2}, runs_dir=folder)
    >>> [run.experiment.algorithm.alpha for run in runs]
    [0.1, 0.3]
    """
    check_count("jobs", jobs)
    check_count("workers", workers)
    if seeds is not None:
        check_count("seeds", seeds)
    if not isinstance(over or {}, Mapping):
        raise UserError(f"over must be a dict such as {{'client.lr': [0.1, 0.3]}}, got {over!r}")
    if isinstance(algorithms, str):
        raise UserError(f"algorithms must be a list, got the string {algorithms!r}; write [{algorithms!r}]")
    if isinstance(experiment, PythonExperiment):
        raise UserError(
            "a sweep starts processes, which cannot share Python objects; loop over `fedcm.run` instead, or put the "
            'model and the data into a module and name them: model.name = "package.module:factory"'
        )
    runs = _expand(experiment, over or {}, overrides, algorithms, seeds)
    folder = Path(runs_dir)
    tasks = make_tasks(runs, folder, archive=make_archive_path(folder) if fresh else None)
    load_trackers(track)  # an unknown name is an error now, not in every run
    data = None if data_dir is None else Path(data_dir)
    reject_impossible_runs(tasks, data)
    record_cells(tasks)
    with StopSignals(interactive=True) as stop_requested:
        try:
            for _ in run_parallel(
                tasks, data, jobs=jobs, workers=workers, track=track, stop_requested=stop_requested, notify=say
            ):
                pass
        except Stopped:
            pass
    if failed := [task for task in tasks if task.state == "failed"]:
        raise UserError(f"{len(failed)} of {len(tasks)} runs failed, first {failed[0].run.name}: {failed[0].why}")
    return [Run(task.folder.path) for task in tasks if task.folder.experiment.is_file()]


def _expand(
    experiment: Experiment | str | Path,
    over: Mapping[str, Sequence[Any]],
    overrides: Overrides,
    algorithms: Sequence[str],
    seeds: int | None,
) -> list[GridRun]:
    swept = [f"{path}={','.join(write_value(value) for value in _check_values(path, over[path]))}" for path in over]
    changes = list_overrides(overrides)
    if isinstance(experiment, Experiment):
        return expand_table(to_table(experiment), changes, algorithms=algorithms, seeds=seeds, over=swept)
    return expand_grid(find_experiment(experiment), changes, algorithms=algorithms, seeds=seeds, over=swept)


def _check_values(path: str, values: Any) -> Sequence[Any]:
    if isinstance(values, str) or not isinstance(values, Sequence) or not values:
        raise UserError(f"over[{path!r}] must be a list of values, got {values!r}")
    return values
