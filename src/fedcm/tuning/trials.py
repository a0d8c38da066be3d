"""A trial, and the record of all trials: `trials.jsonl`, one line when a trial begins and one when it ends.

A line is on the disk before the next step, so after a crash only the last line can be incomplete; it is dropped. The
search is rebuilt from this file alone.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, final

from fedcm.errors import UserError
from fedcm.tuning.objective import ValidationMetric

State = Literal["running", "finished", "pruned", "diverged"]
Points = list[tuple[int, float]]


@final
@dataclass
class TuningTrial:
    """One setting of one algorithm and its result.

    Attributes:
        algorithm: The algorithm's name.
        number: Counted from 0 for each algorithm.
        settings: The tuned settings by path.
        run: The name of the run's folder.
        state: "running" until it has ended. A pruned trial was stopped because it was hopeless.
        metric: The metric of the score; None before the first evaluation.
        score: The mean of the last validations; None if the trial did not finish.
        points: The validation curve, (round from 0, value).
        rounds: The rounds that were trained for it.
    """

    algorithm: str
    number: int
    settings: dict[str, Any]
    run: str
    state: State = "running"
    metric: ValidationMetric | None = None
    score: float | None = None
    points: Points = field(default_factory=list)
    rounds: int = 0

    @property
    def has_ended(self) -> bool:
        """Whether the result is known."""
        return self.state != "running"


@final
class TrialLog:
    """The trials of a search, in the order of their beginning.

    Args:
        path: The file; it is created with the first trial.

    Raises:
        UserError: If the file is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.trials: list[TuningTrial] = []
        content = path.read_bytes() if path.is_file() else b""
        self._size = content.rfind(b"\n") + 1  # without an incomplete last line
        try:
            for line in content[: self._size].splitlines():
                self._apply(json.loads(line))
        except (ValueError, KeyError, TypeError, StopIteration):
            raise UserError(
                f"{str(path)!r} is damaged: every line must be the beginning or the end of a trial; use --fresh, or "
                "another --name"
            ) from None

    def list_trials(self, algorithm: str, limit: int | None = None) -> list[TuningTrial]:
        """Return the trials of an algorithm by their numbers; with a limit, only the numbers below it."""
        own = [trial for trial in self.trials if trial.algorithm == algorithm]
        return [trial for trial in own if limit is None or trial.number < limit]

    def begin(self, trial: TuningTrial) -> None:
        """Record a new trial."""
        self._append({name: getattr(trial, name) for name in ("algorithm", "number", "settings", "run")})
        self.trials.append(trial)

    def end(self, trial: TuningTrial) -> None:
        """Record the result of a trial."""
        result = {name: getattr(trial, name) for name in ("state", "score", "rounds", "points")}
        metric = {"metric": None if trial.metric is None else trial.metric._asdict()}
        self._append({"algorithm": trial.algorithm, "number": trial.number} | result | metric)

    def _append(self, record: dict[str, Any]) -> None:
        line = (json.dumps(record, allow_nan=False) + "\n").encode()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as file:
            file.truncate(self._size)
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        self._size += len(line)

    def _apply(self, record: dict[str, Any]) -> None:
        if "settings" in record:
            self.trials.append(TuningTrial(record["algorithm"], record["number"], record["settings"], record["run"]))
            return
        key = record["algorithm"], record["number"]
        trial = next(trial for trial in self.trials if (trial.algorithm, trial.number) == key)
        trial.state, trial.score = record["state"], record["score"]
        trial.metric = None if record["metric"] is None else ValidationMetric(**record["metric"])
        trial.rounds, trial.points = record["rounds"], [(round, value) for round, value in record["points"]]


def find_best(trials: Sequence[TuningTrial]) -> TuningTrial | None:
    """Return the finished trial with the best score, the first of several; None if none has finished."""
    finished = [
        (trial.score if trial.metric.higher_is_better else -trial.score, trial)
        for trial in trials
        if trial.state == "finished" and trial.score is not None and trial.metric is not None
    ]
    return max(finished, key=lambda one: one[0])[1] if finished else None
