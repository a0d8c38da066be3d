"""Many runs in Python: sweeps over settings, algorithms and seeds."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedcm.api.arguments import (
    AnyPath,
    Overrides,
    format_overrides,
    to_count,
    to_optional_path,
    to_path,
    to_python,
    to_words,
)
from fedcm.api.experiments import PythonExperiment
from fedcm.api.progress import say
from fedcm.api.saved_run import Run
from fedcm.config.bundled import find_experiment
from fedcm.config.experiment import to_table
from fedcm.config.sections import Experiment
from fedcm.config.toml_values import write_value
from fedcm.errors import Stopped, UserError
from fedcm.runs.archive import make_archive_path
from fedcm.runs.folder import reject_file_as_folder
from fedcm.sweeps.grid import GridRun, expand_grid, expand_table
from fedcm.sweeps.session import CoreShare, plan_sweep, reject_failed_tasks, run_tasks
from fedcm.system.signals import StopSignals


def sweep(
    experiment: Experiment | AnyPath,
    over: Mapping[str, Sequence[Any]] | None = None,
    *,
    overrides: Overrides = (),
    algorithms: Sequence[str] = (),
    seeds: int | None = None,
    runs_dir: AnyPath = "runs",
    data_dir: AnyPath | None = None,
    jobs: int = 1,
    workers: int = 1,
    track: str | Sequence[str] = (),
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
        UserError: If a setting is wrong, or a run failed.

    >>> import fedcm, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> runs = fedcm.sweep("demo", {"algorithm.alpha": [0.1, 0.3]}, overrides={"rounds": 2}, runs_dir=folder)
    >>> [run.experiment.algorithm.alpha for run in runs]
    [0.1, 0.3]
    """
    jobs, workers = to_count("jobs", jobs), to_count("workers", workers)
    if seeds is not None:
        seeds = to_count("seeds", seeds)
    trackers = to_words("track", track)
    folder, data = to_path("runs_dir", runs_dir), to_optional_path("data_dir", data_dir)
    reject_file_as_folder(folder)
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
    tasks = plan_sweep(runs, folder, archive=make_archive_path(folder) if fresh else None, notify=say)
    with StopSignals(interactive=True) as stop_requested:
        try:
            run_tasks(tasks, data, CoreShare(jobs, workers), track=trackers, stop_requested=stop_requested, notify=say)
        except Stopped:
            reject_failed_tasks(tasks)
    return [Run(task.folder.path) for task in tasks if task.folder.experiment.is_file()]


def _expand(
    experiment: Experiment | AnyPath,
    over: Mapping[str, Sequence[Any]],
    overrides: Overrides,
    algorithms: Sequence[str],
    seeds: int | None,
) -> list[GridRun]:
    swept = [f"{path}={','.join(_write_values(path, over[path]))}" for path in over]
    changes = format_overrides(overrides)
    if isinstance(experiment, Experiment):
        return expand_table(to_table(experiment), changes, algorithms=algorithms, seeds=seeds, over=swept)
    return expand_grid(find_experiment(experiment), changes, algorithms=algorithms, seeds=seeds, over=swept)


def _write_values(path: str, values: Any) -> list[str]:
    if isinstance(values, str) or not isinstance(values, Sequence) or not values:
        raise UserError(f"over[{path!r}] must be a list of values, got {values!r}")
    return [write_value(to_python(value)) for value in values]
