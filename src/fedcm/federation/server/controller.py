"""The server's part of a job: a controller of the engine that runs the round loop and sends tasks to the sites."""

import hashlib
import shutil
import threading
import tomllib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, final

from nvflare.apis.client import Client
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from fedcm.config.experiment import read_experiment
from fedcm.core.privacy.budget import EPSILON
from fedcm.errors import Diverged, Stopped
from fedcm.federation.engine import RUN_TOPIC
from fedcm.federation.gate.bounded_engine import bound_engine
from fedcm.federation.gate.decoding import limit_decoding
from fedcm.federation.gate.sizes import SizeLimit
from fedcm.federation.kit import RUNS, SERVER_FILE
from fedcm.federation.outcome import LOG, OUTCOME, RESULT, Outcome
from fedcm.federation.server.alarms import SiteAlarm
from fedcm.federation.server.run import RunRequest, run_federation
from fedcm.federation.server.task_channel import TaskChannel
from fedcm.federation.settings import load_server_settings, reject_foreign_code
from fedcm.federation.trust.audit import AuditLog
from fedcm.federation.trust.manifest import write_manifest
from fedcm.privacy.settings import get_delta
from fedcm.runs.evidence.manifest import EVIDENCE, MANIFEST
from fedcm.runs.folder import RunFolder
from fedcm.runs.identity import reject_unusable_name
from fedcm.system.files import write_text

_LOGS = "logs"  # folder of the server's kit with one log file per run
_PUBLISHED = (*EVIDENCE, MANIFEST)
_SUMMARY = "summary.json"
_TAIL = 200  # lines of the log that the outcome contains


@final
class FederatedTraining(Controller):
    """Runs or resumes one run; the engine creates it from a job's configuration."""

    def __init__(self, run: str, experiment: str, resume: bool = False, task_check_period: float = 0.05) -> None:
        """Prepare the job.

        Args:
            run: The run's name in the server's kit.
            experiment: The experiment's TOML, with every site named.
            resume: Whether the run may exist already.
            task_check_period: Seconds between the engine's checks of its tasks.
        """
        super().__init__(task_check_period=task_check_period)
        bound_engine()
        limit_decoding()
        self._refused = set[str]()  # sites that sent a message that was dropped
        self._limit = SizeLimit(self._refuse_reply)
        self._limit.install()
        reject_unusable_name(run)  # files are named after it, and a job can be made by hand
        self.run = run
        self.experiment = experiment
        self.resume = resume
        self.opened = False  # whether this job has opened the run's folder and may publish its files
        self._outcome = Outcome(run=run, state="starting")
        self._last: dict[str, Any] = {}  # metrics of the last round before this job
        self._delta: float | None = None  # δ of a private run
        self._changing = threading.Lock()  # the engine's threads log late answers
        self._stop_command = ""  # of an admin: "stop", or "pause" to resume in another job
        self._channel: TaskChannel | None = None

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Register for admins' queries; called by the engine."""
        engine: Any = fl_ctx.get_engine()
        self.kit = Path(engine.get_workspace().get_root_dir())
        engine.register_app_command(RUN_TOPIC, self._answer_admin)

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Run all rounds; called by the engine."""
        self._channel = channel = TaskChannel(self, fl_ctx, lambda: abort_signal.triggered, self._limit)
        try:
            table = tomllib.loads(self.experiment)
            allowed = load_server_settings(self.kit).limits.code
            reject_foreign_code(table, allowed, "this server", SERVER_FILE)  # before reading it, which imports code
            experiment = read_experiment(table)
            self._delta = get_delta(experiment.privacy) if experiment.privacy.is_on else None
            self._update(state="running", rounds=experiment.rounds, sites=sorted(experiment.federation.sites))
            self._audit(
                "submitted",
                admin=_get_submitter(fl_ctx),
                resume=self.resume,
                sites=sorted(experiment.federation.sites),
                experiment_sha256=hashlib.sha256(self.experiment.encode()).hexdigest(),
            )
            request = RunRequest(self.kit, self.run, _get_submitter(fl_ctx), self.resume)
            for metrics in run_federation(
                request,
                experiment,
                channel,
                self._say,
                lambda: bool(self._stop_command),
                self._mark_opened,
                self._complete_audit,
            ):
                self._update(metrics=metrics)
                self._audit("round", **self._describe_round(metrics))
            self._update(state="finished")
        except Stopped as stopped:
            if abort_signal.triggered and not self._stop_command:
                self._say(f"the engine ended the job of {self.run}; the run can be resumed")
                self._publish(fl_ctx)
                return
            self._update(state="paused" if self._stop_command == "pause" else "stopped", why=str(stopped))
        except Diverged as error:
            self._update(state="diverged", why=str(error))
        except Exception as error:  # an uncaught error would appear only in the engine's log
            self.logger.exception("the run failed")
            self._update(state="failed", why=" ".join(str(error).split()) or type(error).__name__)
        self._say(f"run {self.run} {self._outcome.state}" + (f": {self._outcome.why}" if self._outcome.why else ""))
        self._publish(fl_ctx)
        if self._outcome.state in ("failed", "diverged"):
            self.system_panic(self._outcome.why, fl_ctx)  # so that the engine reports the job as failed

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Do nothing: `control_flow` cleans up."""

    def process_result_of_unknown_task(
        self, client: Client, task_name: str, client_task_id: str, result: Shareable, fl_ctx: FLContext
    ) -> None:
        """Log an answer that came too late; called by the engine."""
        self._say(f"{client.name} answered too late and does not count")

    def _refuse_reply(self, site: str, reason: str) -> None:
        """Treat a message of a site that was dropped as its answer; called by threads of the engine."""
        is_answer = self._channel is not None and self._channel.reject(site, reason)
        if not is_answer and site not in self._refused:  # once: a site can send any number of messages
            self._refused.add(site)
            self._say(f"{site}: {reason}")

    def _mark_opened(self) -> None:
        self._last = next(reversed(RunFolder(self.kit / RUNS / self.run).read_metrics()), {})
        self.opened = True

    def _update(self, **changes: Any) -> None:
        with self._changing:
            self._outcome = self._outcome.replace(**changes)

    def _say(self, message: str) -> None:
        self.logger.info(message)
        line = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {message}"
        with self._changing:
            self._outcome = self._outcome.replace(lines=[*self._outcome.lines, line][-_TAIL:])
            file = self._get_log_file()
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("a", encoding="utf-8") as log:
                log.write(f"{line}\n")
        if isinstance(message, SiteAlarm):
            self._audit("alarm", what=message.what, site=message.site)
        else:
            self._audit("log", line=line)

    @cached_property
    def _audit_log(self) -> AuditLog:
        return AuditLog(self.kit)  # one object, because it remembers how far it has read the log

    def _audit(self, event: str, **fields: Any) -> None:
        """Write a line about this run to the audit log."""
        self._audit_log.append(event, run=self.run, **fields)

    def _complete_audit(self, saved: Sequence[Mapping[str, Any]]) -> None:
        """Append the saved rounds that the audit log lacks: a server may die before it writes the last one there.

        A round that the log describes differently was repeated, so the log lacks it too. An earlier run of this name,
        whose folder is gone, ends with the event "began".
        """
        if not saved:
            self._audit("began")
            return
        known: dict[Any, dict[str, Any]] = {}
        for record in self._audit_log.read_events(run=self.run):
            if record.get("event") == "began":
                known.clear()
            elif record.get("event") == "round":
                known[record.get("round")] = record
        for metrics in saved:
            described, last = self._describe_round(metrics), known.get(metrics["round"], {})
            if described != {name: last.get(name) for name in described}:
                self._audit("round", **described, appended_at_resume=True)

    def _describe_round(self, metrics: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the audit log says about a round."""
        sites = self._outcome.sites
        return {
            "round": metrics["round"],
            "counted": [sites[client] for client in metrics.get("clients", [])],
            "missed": metrics.get("missed", []),
            **self._describe_privacy(metrics),
        }

    def _describe_privacy(self, metrics: Mapping[str, Any]) -> dict[str, float]:
        """Return the ε that a private run has spent, and its δ."""
        return {EPSILON: metrics[EPSILON], "delta": self._delta} if self._delta and EPSILON in metrics else {}

    def _answer_admin(self, topic: str, query: Any, fl_ctx: FLContext) -> dict[str, Any]:
        """Return the outcome so far; "stop" and "pause" end this job after the current round."""
        what = query.get("what") if isinstance(query, dict) else None
        if what in ("stop", "pause") and self._stop_command != "stop":
            self._stop_command = what
        connected = set() if self._channel is None else self._channel.list_connected_sites()
        with self._changing:
            lost = self._outcome.metrics.get("lost", [])  # may be connected, but not to this job
            absent = sorted((set(self._outcome.sites) - connected) | set(lost))
            return self._outcome.replace(absent=absent).model_dump()

    def _get_log_file(self) -> Path:
        return self.kit / _LOGS / f"{self.run}.log"

    def _publish(self, fl_ctx: FLContext) -> None:
        """Copy what an admin can fetch to the place from which the engine takes a job's results."""
        engine: Any = fl_ctx.get_engine()
        result_folder = Path(engine.get_workspace().get_run_dir(fl_ctx.get_job_id())) / RESULT
        result_folder.mkdir(parents=True, exist_ok=True)
        if self.opened:
            run = self.kit / RUNS / self.run
            for name in _PUBLISHED:
                is_early = name == _SUMMARY and not (run / MANIFEST).is_file()  # of a run that was killed at its end
                if (run / name).is_file() and not is_early:
                    shutil.copyfile(run / name, result_folder / name)
            shutil.copyfile(self._get_log_file(), result_folder / LOG)
        else:
            write_text(result_folder / LOG, "\n".join([*self._outcome.lines, ""]))
        if self._outcome.has_ended:  # without this file, an admin's command treats the job as lost
            write_text(result_folder / OUTCOME, self._outcome.model_dump_json(indent=2))
        metrics = self._last | self._outcome.metrics
        privacy = self._describe_privacy(metrics)
        self._audit("published", state=self._outcome.state, **privacy)
        write_manifest(
            result_folder,
            self.kit,
            self._audit_log.read_head(),
            run=self.run,
            sites=self._outcome.sites,
            rounds=metrics.get("round", -1) + 1,
            privacy=privacy,
        )


def _get_submitter(fl_ctx: FLContext) -> str:
    meta = fl_ctx.get_prop(FLContextKey.JOB_META) or {}
    return str(meta.get("submitter_name", "")) if isinstance(meta, dict) else ""
