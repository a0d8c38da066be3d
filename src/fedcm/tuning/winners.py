"""The best trial of each algorithm: its experiment as a file, and its runs with further seeds.

The scores of the trials chose the setting, so they are too good. The further seeds have other data splits, cohorts and
initial parameters, and only their test scores are reported.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from fedcm.config.experiment import read_experiment, to_toml
from fedcm.config.overrides import read_table
from fedcm.config.sections import CellSection, Experiment
from fedcm.runs.folder import RunFolder
from fedcm.runs.summary import read_current_summary
from fedcm.sweeps.grid import GridRun
from fedcm.sweeps.tasks import SweepTask
from fedcm.system.files import write_text
from fedcm.tuning.plan import make_file_name
from fedcm.tuning.search import Search
from fedcm.tuning.trials import TuningTrial, find_best


@final
@dataclass
class Winner:
    """The result of one algorithm.

    Attributes:
        algorithm: The algorithm's name.
        trials: All its trials.
        best: The best trial; None if none has finished.
        file: The experiment of the best trial, for `fedcm run`; None without one.
        tasks: The runs of the best setting with further seeds.
    """

    algorithm: str
    trials: list[TuningTrial]
    best: TuningTrial | None
    file: Path | None
    tasks: list[SweepTask]

    @property
    def rounds(self) -> int:
        """The rounds that the trials took together."""
        return sum(trial.rounds for trial in self.trials)

    def list_test_scores(self) -> list[float]:
        """Return the test score of each further seed that finished: the headline metric, else the loss."""
        finished = [summary for summary in self.list_summaries() if summary["outcome"] == "finished"]
        scores = [next(iter((one.get("metrics") or {}).values()), None) or one.get("test_losses") for one in finished]
        return [score["mean_last"] for score in scores if score]

    def list_summaries(self) -> list[dict[str, Any]]:
        """Return the summaries of the runs with further seeds that have ended."""
        return [summary for task in self.tasks if (summary := read_current_summary(task.folder)) is not None]


def choose_winners(search: Search) -> list[Winner]:
    """Choose the best trial of each algorithm and write its experiment."""
    winners = []
    for plan in search.plan.algorithms:
        trials = search.list_trials(plan.algorithm)
        best = find_best(trials)
        file = None
        if best is not None:
            file = search.folder / f"best-{make_file_name(plan.algorithm)}.toml"
            write_text(file, to_toml(read_trial_experiment(search.folder, best)))
        winners.append(Winner(plan.algorithm, trials, best, file, []))
    return winners


def list_winner_runs(search: Search, winners: Sequence[Winner]) -> list[tuple[Winner, GridRun]]:
    """Return the runs of the best settings: the seeds after the experiment's own, which the trials had."""
    runs = []
    for winner in winners:
        if winner.best is None:
            continue
        experiment = read_trial_experiment(search.folder, winner.best)
        for seed in range(experiment.seed + 1, experiment.seed + 1 + search.plan.seeds):
            name = f"best-{make_file_name(winner.algorithm)}-seed{seed}"
            runs.append((winner, GridRun(name, experiment.model_copy(update={"seed": seed}))))
    return runs


def read_trial_experiment(folder: Path, trial: TuningTrial) -> Experiment:
    """Return the experiment of a trial's run, with the choices that autotune made and without its labels."""
    experiment = read_experiment(read_table(RunFolder(folder / trial.run).experiment))
    return experiment.model_copy(update={"cell": CellSection()})


def to_result_table(winners: Sequence[Winner]) -> dict[str, Any]:
    """Return the results for JSON, by algorithm."""
    return {
        winner.algorithm: {
            "settings": None if winner.best is None else winner.best.settings,
            "metric": None if winner.best is None or winner.best.metric is None else winner.best.metric.key,
            "validation": None if winner.best is None else winner.best.score,
            "test": winner.list_test_scores(),
            "trials": len(winner.trials),
            "pruned": sum(trial.state == "pruned" for trial in winner.trials),
            "diverged": sum(trial.state == "diverged" for trial in winner.trials),
            "rounds": winner.rounds,
            "experiment": None if winner.file is None else str(winner.file),
            "runs": [str(task.folder.path) for task in winner.tasks],
        }
        for winner in winners
    }


def to_trial_rows(winners: Sequence[Winner]) -> list[dict[str, Any]]:
    """Return one row per trial: algorithm, number, state, score, rounds, run and the tuned settings by path."""
    return [
        {name: getattr(trial, name) for name in ("algorithm", "number", "state", "score", "rounds", "run")}
        | trial.settings
        for winner in winners
        for trial in winner.trials
    ]
