"""Runs of trials whose validation curves are given by a function of the experiment, without training."""

import math
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedcm.config.experiment import to_toml
from fedcm.config.sections import Experiment
from fedcm.runs.folder import RunFolder
from fedcm.runs.session import Session
from fedcm.sweeps.run_process import RunProcess
from fedcm.sweeps.tasks import SweepTask

Curve = Callable[[Experiment, int], dict[str, float]]  # the metrics of a round


def score_by_rate(experiment: Experiment, round: int) -> dict[str, float]:
    """Validation grows with the rounds and is best at client.lr = 0.1; the test set says the opposite."""
    share = (round + 1) / experiment.rounds
    value = share / (1 + abs(math.log10(experiment.client.lr / 0.1)))
    return {"validation_accuracy": value, "test_accuracy": 1 - value, "validation_loss": 1 - value, "test_loss": value}


class ScriptedProcess:
    """Looks like a process that trains: every poll is one round."""

    def __init__(self, task: SweepTask, curve: Curve, diverges: bool) -> None:
        self.task, self.curve, self.diverges = task, curve, diverges
        self.folder, self.returncode = task.folder, None
        self.signals: list[int] = []
        if not task.folder.experiment.is_file():
            RunFolder.create(task.folder.path, to_toml(task.run.experiment), {"data_sha256": {}}).unlock()
        self.round = len(task.folder.read_metrics())

    def poll(self) -> int | None:
        """Train one round."""
        rounds = self.task.rounds
        if self.returncode is None and self.diverges and self.round == rounds // 2:
            self.finish("diverged")
        elif self.returncode is None and self.round < rounds:
            usual = {"round": self.round, "loss": 1.0, "cohort": 1, "bytes_down": 1, "bytes_up": 1, "seconds": 0.1}
            self.folder.append(usual | self.curve(self.task.run.experiment, self.round))
            self.round += 1
        elif self.returncode is None:
            self.finish("finished")
        return self.returncode

    def finish(self, outcome: str) -> None:
        """Write a summary, as a run does."""
        self.returncode = 0 if outcome == "finished" else 1
        name = self.task.run.name
        last = self.curve(self.task.run.experiment, self.task.rounds - 1).get("test_accuracy", 0.0)
        scores = {"last": last, "mean_last": last, "mean_last_rounds": 1, "best": last}
        self.folder.write_summary(
            {"name": name, "outcome": outcome, "params_sha256": "", "accuracy": scores, "rounds": self.round}
            | {"test_loss": None, "seed": self.task.run.experiment.seed, "rounds_to_accuracy": {}}
        )

    def send_signal(self, number: int) -> None:
        """End at once, without a summary."""
        self.signals.append(number)
        self.returncode = 128 + number

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code."""
        return self.returncode or 0


class ScriptedRuns:
    """Stands in for `RunLauncher.start`; records what was started."""

    def __init__(
        self, curve: Curve = score_by_rate, diverges: Callable[[Experiment], bool] = lambda one: False
    ) -> None:
        self.curve, self.diverges = curve, diverges
        self.started: list[str] = []
        self.processes: list[ScriptedProcess] = []

    def __call__(
        self, task: SweepTask, data_dir: Path | None, workers: int, track: Sequence[str], scratch: Path
    ) -> RunProcess:
        self.started.append(task.run.name)
        process: Any = ScriptedProcess(task, self.curve, self.diverges(task.run.experiment))
        self.processes.append(process)
        task.outcome = "running"
        return RunProcess(process, scratch / "stderr.txt")

    @property
    def interrupted(self) -> list[str]:
        """The runs that got a Ctrl-C."""
        return [one.task.run.name for one in self.processes if signal.SIGINT in one.signals]


class TrainedProcess:
    """A run that was trained in this process, before the first poll."""

    def __init__(self, outcome: str) -> None:
        self.returncode = 0 if outcome == "finished" else 1

    def poll(self) -> int:
        """Return the exit code."""
        return self.returncode


def train_at_once(
    task: SweepTask, data_dir: Path | None, workers: int, track: Sequence[str], scratch: Path
) -> RunProcess:
    """Stand in for `RunLauncher.start`: train the run in this process."""
    if task.folder.experiment.is_file():
        session = Session.resume(task.folder.path)
    else:
        session = Session.start(task.run.experiment, task.folder.path.parent, task.run.name)
    with session:
        for _ in session.rounds():
            pass
    process: Any = TrainedProcess((task.folder.read_summary() or {})["outcome"])
    task.outcome = "running"
    return RunProcess(process, scratch / "stderr.txt")
