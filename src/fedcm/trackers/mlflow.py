"""A run in an MLflow store: that of MLFLOW_TRACKING_URI, or `mlflow.db` beside the runs' folders.

MLflow takes nothing back that it was told, so a resumed run goes on under the id that its folder keeps, and rounds
that the store has are passed over: run again they have the same bits.
"""

import logging
import os
import time
from pathlib import Path
from typing import final

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # it calls home as soon as it is imported

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException

from fedcm.trackers.tracker import Flat, Point, TrackedRun

_MOST = 1000, 100, 100  # metrics, parameters, tags that MLflow takes at once
_EVERY = 1.0  # seconds between transactions at least: one costs as much as a round of a tiny model
_STATUS = {"finished": "FINISHED", "diverged": "FAILED"}


@final
class MLflow:
    def begin(self, run: TrackedRun) -> None:
        logging.getLogger("mlflow").setLevel(logging.WARNING)
        runs = run.folder.absolute().parent
        self.client = MlflowClient(os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{runs / 'mlflow.db'}")
        self.waiting: list[Metric] = []
        self.sent = time.monotonic()
        kept = run.folder / "mlflow-run-id"
        known = self._known(kept)
        if known is None:
            experiment = self._experiment(str(run.settings["name"]), runs)
            known = self.client.create_run(experiment, run_name=run.name).info.run_id
            kept.write_text(f"{known}\n", encoding="utf-8")
        self.id = known
        data = self.client.get_run(self.id).data
        self.held = {key: max(m.step for m in self.client.get_metric_history(self.id, key)) for key in data.metrics}
        self.client.update_run(self.id, status="RUNNING")
        settings = [Param(key, str(value)) for key, value in run.settings.items() if key not in data.params]
        for start in range(0, len(settings), _MOST[1]):
            self.client.log_batch(self.id, params=settings[start : start + _MOST[1]])

    def round(self, point: Point) -> None:
        if len(self.waiting) + len(point.values) > _MOST[0]:  # a round is told whole or not at all
            self._send()
        self._tell(point.values, point.round)
        if time.monotonic() - self.sent >= _EVERY:
            self._send()

    def end(self, summary: Flat | None) -> None:
        self._send()
        if summary is not None:
            numbers = {f"summary/{key}": float(v) for key, v in summary.items() if isinstance(v, int | float)}
            self._tell(numbers, int(summary["rounds"]))
            self._send()
            words = [RunTag(f"summary/{key}", value) for key, value in summary.items() if isinstance(value, str)]
            self.client.log_batch(self.id, tags=words[: _MOST[2]])
        self.client.set_terminated(self.id, _STATUS.get(str((summary or {}).get("outcome")), "KILLED"))

    def _tell(self, values: dict[str, float], step: int) -> None:
        now = time.time_ns() // 1_000_000
        self.waiting += [Metric(key, v, now, step) for key, v in values.items() if step > self.held.get(key, -1)]

    def _send(self) -> None:
        if self.waiting:
            self.client.log_batch(self.id, metrics=self.waiting)
        self.waiting, self.sent = [], time.monotonic()

    def _known(self, kept: Path) -> str | None:
        """The id of an earlier start, where the store still has it."""
        try:
            return self.client.get_run(kept.read_text(encoding="utf-8").strip()).info.run_id
        except (FileNotFoundError, MlflowException):
            return None

    def _experiment(self, name: str, runs: Path) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or name
        local = None if os.environ.get("MLFLOW_TRACKING_URI") else (runs / "mlflow-artifacts").as_uri()
        found = self.client.get_experiment_by_name(name)
        if found is not None:
            return found.experiment_id
        try:
            return self.client.create_experiment(name, artifact_location=local)
        except MlflowException:
            found = self.client.get_experiment_by_name(name)
            if found is None:
                raise
            return found.experiment_id  # another process was faster
