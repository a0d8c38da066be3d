"""Run trials in parallel, each as a process of its own, until every algorithm has used its budget.

Trials that another process began are resumed first. The algorithms take turns, so that all of them are equally far at
any time. A hopeless trial is stopped as Ctrl-C does: its rounds are saved, and `fedcm resume` could continue it.
"""

import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from fedcm.errors import Stopped, UserError
from fedcm.runs.folder import RunFolder
from fedcm.sweeps.grid import GridRun
from fedcm.sweeps.placement import describe_difference
from fedcm.sweeps.run_process import RunLauncher, RunProcess, read_result, stop_processes
from fedcm.sweeps.session import CoreShare
from fedcm.sweeps.tasks import SweepTask
from fedcm.system.callbacks import Notify, StopRequested
from fedcm.tuning.objective import MetricsReader, Objective, read_objective
from fedcm.tuning.plan import AlgorithmPlan, TuningPlan, make_file_name
from fedcm.tuning.sampler import find_hopeless_round, suggest
from fedcm.tuning.trials import TrialLog, TuningTrial

_POLL = 0.2  # seconds


@final
@dataclass(frozen=True)
class SearchOptions:
    """How a search runs its trials.

    Attributes:
        share: Trials in parallel, and processes per trial.
        data_dir: Folder of prepared datasets.
        prune: Whether hopeless trials are stopped.
        track: Names of trackers.
        stop_requested: Returns whether the user asked to stop.
        notify: Called with one sentence about each thing that the user should know.
    """

    share: CoreShare
    data_dir: Path | None = None
    prune: bool = True
    track: Sequence[str] = ()
    stop_requested: StopRequested = lambda: False
    notify: Notify = lambda sentence: None


@dataclass
class _ActiveTrial:
    """A trial in progress: its run, its process and its validation curve."""

    trial: TuningTrial
    task: SweepTask
    reader: MetricsReader
    child: RunProcess | None = None  # None while another process has locked the folder
    checked: int = 0  # evaluations that were compared with other trials
    hopeless_round: int | None = None


@final
class Search:
    """The trials of a tuning.

    Args:
        plan: The algorithms, their spaces and the budget.
        folder: The tuning's folder, which has the record of the trials and their runs.
        options: How trials are run.
    """

    def __init__(self, plan: TuningPlan, folder: Path, options: SearchOptions) -> None:
        self.plan, self.folder, self.options = plan, folder, options
        self.log = TrialLog(folder / "trials.jsonl")
        self._active: list[_ActiveTrial] = []

    def list_trials(self, algorithm: str) -> list[TuningTrial]:
        """Return the trials of an algorithm that its budget covers."""
        return self.log.list_trials(algorithm, self.plan.trials)

    @property
    def total(self) -> int:
        """The number of trials of all algorithms."""
        return self.plan.trials * len(self.plan.algorithms)

    @property
    def ended(self) -> list[TuningTrial]:
        """All trials whose result is known."""
        return [trial for one in self.plan.algorithms for trial in self.list_trials(one.algorithm) if trial.has_ended]

    @property
    def running(self) -> list[tuple[TuningTrial, SweepTask]]:
        """The trials in progress."""
        return [(one.trial, one.task) for one in self._active]

    def run(self) -> Iterator[TuningTrial | None]:
        """Run the remaining trials.

        Yields:
            Each trial that has ended; None after each poll, so that the caller can show progress.

        Raises:
            Stopped: If the user asked to stop; all processes have saved their rounds.
            UserError: If a run failed for another reason than divergence.
        """
        with RunLauncher() as launcher:
            try:
                while True:
                    if self.options.stop_requested():
                        raise Stopped
                    yield from self._fill_slots()
                    if not self._active:
                        return
                    for one in list(self._active):
                        if self._advance(one, launcher):
                            self._active.remove(one)
                            self.log.end(one.trial)
                            yield one.trial
                    yield None
                    time.sleep(_POLL)
            finally:
                stop_processes([one.child for one in self._active if one.child is not None])

    def _fill_slots(self) -> Iterator[TuningTrial]:
        """Begin trials in the free slots; yield those that repeat an earlier trial and so have its result."""
        while len(self._active) < self.options.share.jobs and (trial := self._choose_trial()) is not None:
            plan = self._get_plan(trial)
            earlier = [one for one in self.list_trials(trial.algorithm) if one.has_ended]
            if same := next((one for one in earlier if one.settings == trial.settings), None):
                trial.run, trial.state, trial.metric = same.run, same.state, same.metric
                trial.score, trial.points = same.score, same.points
                self.log.end(trial)
                yield trial
                continue
            task = SweepTask(
                GridRun(trial.run, plan.make_experiment(trial.settings)), RunFolder(self.folder / trial.run)
            )
            self._active.append(_ActiveTrial(trial, task, MetricsReader(task.folder.metrics)))

    def _choose_trial(self) -> TuningTrial | None:
        """Return a trial that was interrupted, or a new one of the algorithm with the fewest; None if all are done."""
        active = [one.trial for one in self._active]
        counts: list[tuple[int, AlgorithmPlan]] = []
        for plan in self.plan.algorithms:
            trials = self.list_trials(plan.algorithm)
            for trial in trials:
                if not trial.has_ended and trial not in active:
                    return trial
            counts.append((len(trials), plan))
        number, plan = min(counts, key=lambda one: one[0])
        if number == self.plan.trials:
            return None
        known = self.list_trials(plan.algorithm)
        settings = suggest(plan.space, known, self.plan.seed, plan.algorithm, number)
        run = f"trial-{number:04d}-{make_file_name(plan.algorithm)}"
        trial = TuningTrial(plan.algorithm, number, settings, run)
        self.log.begin(trial)
        return trial

    def _advance(self, one: _ActiveTrial, launcher: RunLauncher) -> bool:
        """Start the trial's process, or look at its progress; return whether the trial has ended."""
        if one.child is None:
            return self._start(one, launcher) and self._end(one)
        has_exited = one.child.process.poll() is not None  # before the metrics are read, so that none is missed
        one.task.update_progress()
        one.trial.rounds = one.task.rounds_done
        if self._is_hopeless(one) and not has_exited:
            one.child.process.send_signal(signal.SIGINT)
            one.child.process.wait()
            has_exited = True
        if not has_exited:
            return False
        if one.hopeless_round is None:
            read_result(one.task, one.child, self.options.notify)
        return self._end(one)

    def _start(self, one: _ActiveTrial, launcher: RunLauncher) -> bool:
        """Start or resume the run; return whether it has ended already."""
        task, options = one.task, self.options
        if task.folder.is_locked():
            if task.outcome != "locked":
                options.notify(f"{task.run.name} is in progress in another process; waiting for it to end")
            task.outcome = "locked"
            return False
        if task.folder.experiment.is_file() and (how := describe_difference(task.folder, task.run.experiment)):
            raise UserError(
                f"{str(task.folder.path)!r} must be the run of this trial, but it is there {how}; use --fresh, or "
                "another --name"
            )
        task.read_folder()
        if task.has_ended or self._is_hopeless(one):
            return True
        one.child = launcher.start(task, options.data_dir, options.share.workers, options.track)
        return False

    def _is_hopeless(self, one: _ActiveTrial) -> bool:
        """Compare the evaluations that are new with the other trials of the algorithm."""
        objective = self._read_objective(one)
        if objective is None or not self.options.prune or one.hopeless_round is not None:
            return one.hopeless_round is not None
        others = [other for other in self.list_trials(one.trial.algorithm) if other.metric == objective.metric]
        one.hopeless_round = find_hopeless_round(objective.points, others, one.task.rounds, one.checked)
        one.checked = len(objective.points)
        return one.hopeless_round is not None

    def _end(self, one: _ActiveTrial) -> bool:
        """Set the result of a trial whose run has ended."""
        trial, task = one.trial, one.task
        objective = self._read_objective(one)
        trial.rounds = len(one.reader.lines)
        if task.outcome == "failed" and one.hopeless_round is None:
            raise UserError(f"the run {str(task.folder.path)!r} of a trial failed: {task.reason}")
        if objective is not None:
            trial.metric, trial.points = objective.metric, objective.points
        if self._is_hopeless(one):  # also if the run was faster than the polls: timing decides nothing
            trial.state = "pruned"
            trial.points = [point for point in trial.points if point[0] <= (one.hopeless_round or 0)]
        elif task.outcome == "diverged":
            trial.state = "diverged"
        elif objective is None:
            raise UserError(
                f"a trial must be evaluated on validation data, but {str(task.folder.path)!r} was not; set "
                "data.validation"
            )
        else:
            trial.state, trial.score = "finished", objective.score
        return True

    def _read_objective(self, one: _ActiveTrial) -> Objective | None:
        return read_objective(one.reader.update(), one.task.folder.try_read_provenance())

    def _get_plan(self, trial: TuningTrial) -> AlgorithmPlan:
        return next(plan for plan in self.plan.algorithms if plan.algorithm == trial.algorithm)
