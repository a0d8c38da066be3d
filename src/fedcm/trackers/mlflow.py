"""Log a run to an MLflow store: the one of MLFLOW_TRACKING_URI, or `mlflow.db` in the folder of the runs.

MLflow cannot delete metrics. So a resumed run continues under the MLflow id that is stored in its folder, and rounds
that the store already has are skipped: when they run again, they have the same bits.
"""

import logging
import os
import time
from pathlib import Path
from typing import final

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # before the import, which sends telemetry

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException

from fedcm.trackers.tracker import FlatTable, RoundValues, TrackedRun

_MAX_METRICS, _MAX_PARAMS, _MAX_TAGS = 1000, 100, 100  # that MLflow accepts at once
_INTERVAL = 1.0  # least seconds between transactions, each of which costs as much as a round of a tiny model
_STATUS = {"finished": "FINISHED", "diverged": "FAILED"}


@final
class MLflow:
    """Logs a run to MLflow."""

    def begin(self, run: TrackedRun) -> None:
        """Create the run in the store, or find the one of an earlier start, and log the settings that it lacks."""
        logging.getLogger("mlflow").setLevel(logging.WARNING)
        runs = run.folder.absolute().parent
        self.client = MlflowClient(os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{runs / 'mlflow.db'}")
        self.pending: list[Metric] = []
        self.last_sent = time.monotonic()
        id_file = run.folder / "mlflow-run-id"
        run_id = self._find_run(id_file)
        if run_id is None:
            experiment = self._find_or_create_experiment(str(run.settings["name"]), runs)
            run_id = self.client.create_run(experiment, run_name=run.name).info.run_id
            id_file.write_text(f"{run_id}\n", encoding="utf-8")
        self.id = run_id
        data = self.client.get_run(self.id).data
        self.last_steps = {
            key: max(m.step for m in self.client.get_metric_history(self.id, key)) for key in data.metrics
        }
        self.client.update_run(self.id, status="RUNNING")
        settings = [Param(key, str(value)) for key, value in run.settings.items() if key not in data.params]
        for start in range(0, len(settings), _MAX_PARAMS):
            self.client.log_batch(self.id, params=settings[start : start + _MAX_PARAMS])

    def log_round(self, point: RoundValues) -> None:
        """Queue the numbers of one round, without those in the store; send the queue about once per second."""
        if len(self.pending) + len(point.values) > _MAX_METRICS:  # a round is sent in one transaction
            self._send()
        self._queue(point.values, point.round)
        if time.monotonic() - self.last_sent >= _INTERVAL:
            self._send()

    def end(self, summary: FlatTable | None) -> None:
        """Send the rest and the summary, and set the status: FINISHED, FAILED (diverged) or KILLED (stopped)."""
        self._send()
        if summary is not None:
            numbers = {f"summary/{key}": float(v) for key, v in summary.items() if isinstance(v, int | float)}
            self._queue(numbers, int(summary["rounds"]))
            self._send()
            tags = [RunTag(f"summary/{key}", value) for key, value in summary.items() if isinstance(value, str)]
            self.client.log_batch(self.id, tags=tags[:_MAX_TAGS])
        self.client.set_terminated(self.id, _STATUS.get(str((summary or {}).get("outcome")), "KILLED"))

    def _queue(self, values: dict[str, float], step: int) -> None:
        now = time.time_ns() // 1_000_000
        self.pending += [Metric(key, v, now, step) for key, v in values.items() if step > self.last_steps.get(key, -1)]

    def _send(self) -> None:
        if self.pending:
            self.client.log_batch(self.id, metrics=self.pending)
        self.pending, self.last_sent = [], time.monotonic()

    def _find_run(self, id_file: Path) -> str | None:
        """Return the id in the file, if the store still has that run."""
        try:
            return self.client.get_run(id_file.read_text(encoding="utf-8").strip()).info.run_id
        except (FileNotFoundError, MlflowException):
            return None

    def _find_or_create_experiment(self, name: str, runs: Path) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or name
        artifacts = None if os.environ.get("MLFLOW_TRACKING_URI") else (runs / "mlflow-artifacts").as_uri()
        existing = self.client.get_experiment_by_name(name)
        if existing is not None:
            return existing.experiment_id
        try:
            return self.client.create_experiment(name, artifact_location=artifacts)
        except MlflowException:
            existing = self.client.get_experiment_by_name(name)
            if existing is None:
                raise
            return existing.experiment_id  # another process created it in the meantime
