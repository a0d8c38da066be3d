"""Tuning in Python: search for the best settings of algorithms."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any, final

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
from fedcm.config.experiment import load_experiment_file
from fedcm.config.sections import Experiment
from fedcm.config.toml_values import write_value
from fedcm.errors import Stopped, UserError
from fedcm.reports.search.write import write_tuning_report
from fedcm.runs.folder import reject_file_as_folder
from fedcm.sweeps.session import CoreShare
from fedcm.system.signals import StopSignals
from fedcm.tuning.plan import plan_tuning
from fedcm.tuning.search import Search, SearchOptions
from fedcm.tuning.session import run_tuning
from fedcm.tuning.winners import Winner, to_trial_rows


@final
@dataclass(frozen=True)
class TunedAlgorithm:
    """The best setting of one algorithm.

    Attributes:
        settings: The tuned settings by path; empty if no trial has finished.
        metric: The validation metric's key in `metrics.jsonl`, such as "validation_accuracy".
        validation: The score of the best trial; None if no trial has finished.
        test: The test score of each further seed: mean accuracy (or loss) of the last rounds.
        file: The experiment of the best trial, which `fedcm.run` accepts.
        runs: The runs of the best setting with further seeds.
    """

    settings: dict[str, Any]
    metric: str
    validation: float | None
    test: list[float]
    file: Path | None
    runs: list[Run]

    @property
    def experiment(self) -> Experiment:
        """The experiment of the best trial.

        Raises:
            UserError: If no trial has finished.
        """
        if self.file is None:
            raise UserError("no trial of this algorithm has finished, so it has no best experiment; widen the space")
        return load_experiment_file(self.file)


@final
class TuningResult:
    """The result of `fedcm.tune`.

    Attributes:
        path: The tuning's folder, with all its runs.
        best: The best setting of each algorithm, by its name.
        trials: One dict per trial: algorithm, number, state, score, rounds, run and the tuned settings by path.
            `pandas.DataFrame(result.trials)` makes a data frame of it.
    """

    def __init__(self, search: Search, winners: Sequence[Winner], data_dir: Path | None) -> None:
        self._search, self._winners, self._data_dir = search, winners, data_dir
        self.path = search.folder
        self.best = {winner.algorithm: _to_tuned_algorithm(winner) for winner in winners}
        self.trials = to_trial_rows(winners)

    def report(self) -> Path:
        """Write a page about the winners' runs and the search, and return its path."""
        return write_tuning_report(self._search, self._winners, self._data_dir, notify=say)

    def __repr__(self) -> str:
        return f"<TuningResult: {len(self.trials)} trials of {', '.join(self.best)} in {str(self.path)!r}>"


def tune(
    experiment: Experiment | AnyPath,
    over: Mapping[str, Any],
    *,
    trials: int = 30,
    algorithms: Sequence[str] | None = None,
    seeds: int = 1,
    overrides: Overrides = (),
    validation: float = 0.1,
    prune: bool = True,
    name: str | None = None,
    runs_dir: AnyPath = "runs",
    data_dir: AnyPath | None = None,
    jobs: int = 1,
    workers: int = 1,
    track: str | Sequence[str] = (),
    fresh: bool = False,
) -> TuningResult:
    """Search for the best settings of one or several algorithms, by their accuracy (or loss) on validation data.

    Each algorithm gets the same number of trials, and hopeless trials are stopped early. The best setting of each
    algorithm then runs with further seeds; only these runs' test scores are reported. After Ctrl-C, the same call
    continues. It needs Optuna: `pip install "fedcm[tune]"`.

    Args:
        experiment: An experiment, a TOML file, or the name of a bundled experiment.
        over: The settings to tune by path. A tuple is a range: `(0.01, 1.0, "log")`, `(1, 5, "int")`,
            `(0.5, 1.5, "step=0.1")`; a list has choices. "fedcm:algorithm.alpha" is for one algorithm;
            "algorithm.alpha" applies to all algorithms that have it.
        trials: Trials per algorithm.
        algorithms: Names of algorithms to tune, such as `["fedavg", "fedcm"]`; by default the experiment's own.
        seeds: Further seeds for the best setting of each algorithm.
        overrides: Settings to change in all runs.
        validation: Share of the training data to hold back, if the experiment has no validation data.
        prune: Stop trials that are worse than the median of earlier ones.
        name: The tuning's folder in `runs_dir`; by default the experiment's name and "-tune".
        runs_dir: The folder of runs.
        data_dir: Folder of prepared datasets.
        jobs: Trials in parallel.
        workers: Processes per trial.
        track: Also log to "tensorboard", "mlflow" or "wandb".
        fresh: Start again; an existing tuning of this name is moved to the archive.

    Returns:
        The best settings, the trials and the winners' runs.

    Raises:
        UserError: If a setting is wrong, a run failed, or the folder has another tuning.
        KeyboardInterrupt: If Ctrl-C stopped the tuning; all finished rounds are saved.
    """
    if isinstance(experiment, PythonExperiment):
        raise UserError(
            "a tuning starts processes, which cannot share Python objects; put the model and the data into a module "
            'and name them: model.name = "package.module:factory"'
        )
    if isinstance(algorithms, str):
        raise UserError(f"algorithms must be a list, got the string {algorithms!r}; write [{algorithms!r}]")
    if not isinstance(over, Mapping):
        raise UserError(f"over must be a dict such as {{'client.lr': (0.01, 1.0, 'log')}}, got {over!r}")
    if isinstance(validation, bool) or not isinstance(validation, Real):
        raise UserError(f"validation must be a number between 0 and 1, got {validation!r}")
    share = CoreShare(to_count("jobs", jobs), to_count("workers", workers))
    folder, data = to_path("runs_dir", runs_dir), to_optional_path("data_dir", data_dir)
    reject_file_as_folder(folder)
    plan = plan_tuning(
        experiment if isinstance(experiment, Experiment) else find_experiment(experiment),
        [f"{path}={_write_domain(path, to_python(values))}" for path, values in over.items()],
        format_overrides(overrides),
        algorithms=algorithms or (),
        trials=to_count("trials", trials),
        seeds=to_count("seeds", seeds),
        validation=float(validation),
        name=name,
        data_dir=data,
    )
    with StopSignals(interactive=True) as stop_requested:
        options = SearchOptions(share, data, prune, to_words("track", track), stop_requested, say)
        try:
            search, winners = run_tuning(plan, folder, options, fresh=fresh)
        except Stopped:
            raise KeyboardInterrupt from None
    return TuningResult(search, winners, data)


def _write_domain(path: str, values: Any) -> str:
    match values:
        case str():
            return values
        case tuple() if len(values) >= 2 and all(isinstance(flag, str) for flag in values[2:]):
            return ":".join([f"{values[0]!r}..{values[1]!r}", *values[2:]])
        case list() if values:
            return ",".join(map(write_value, values))
    raise UserError(
        f"over[{path!r}] must be a range such as (0.01, 1.0, 'log') or a list of choices such as [5, 10], got "
        f"{values!r}"
    )


def _to_tuned_algorithm(winner: Winner) -> TunedAlgorithm:
    best = winner.best
    return TunedAlgorithm(
        {} if best is None else best.settings,
        "" if best is None or best.metric is None else best.metric.key,
        None if best is None else best.score,
        winner.list_test_scores(),
        winner.file,
        [Run(task.folder.path) for task in winner.tasks],
    )
