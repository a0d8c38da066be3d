"""The server's part of a job: a controller of the engine that runs the round loop and sends tasks to the sites."""

import hashlib
import queue
import shutil
import threading
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, final

from nvflare.apis.client import Client
from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from fedcm.config.experiment import read_experiment
from fedcm.errors import Diverged, Stopped
from fedcm.federation.engine import RUN_TOPIC
from fedcm.federation.frames import REJECTED, Arrays
from fedcm.federation.gate.decoding import limit_decoding
from fedcm.federation.kit import RUNS, SERVER_FILE
from fedcm.federation.outcome import LOG, RESULT, Outcome
from fedcm.federation.server.channel import Deadline, SiteAnswer
from fedcm.federation.server.run import RunRequest, run_federation
from fedcm.federation.settings import load_server_settings, reject_foreign_code
from fedcm.federation.trust.audit import AuditLog
from fedcm.federation.trust.manifest import write_manifest
from fedcm.runs.evidence.manifest import EVIDENCE, MANIFEST
from fedcm.runs.identity import reject_unusable_name
from fedcm.system.callbacks import StopRequested
from fedcm.system.files import write_text

_LOGS = "logs"  # folder of the server's kit with one log file per run
_PUBLISHED = (*EVIDENCE, MANIFEST)
_POLL = 0.05  # seconds between checks whether to stop
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
        limit_decoding()
        reject_unusable_name(run)  # files are named after it, and a job can be made by hand
        self.run = run
        self.experiment = experiment
        self.resume = resume
        self.opened = False  # whether this job has opened the run's folder and may publish its files
        self._outcome = Outcome(run=run, state="starting")
        self._changing = threading.Lock()  # the engine's threads log late answers
        self._stop_command = ""  # of an admin: "stop", or "pause" to resume in another job
        self._channel: _TaskChannel | None = None

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Register for admins' queries; called by the engine."""
        engine: Any = fl_ctx.get_engine()
        self.kit = Path(engine.get_workspace().get_root_dir())
        engine.register_app_command(RUN_TOPIC, self._answer_admin)

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Run all rounds; called by the engine."""
        self._channel = channel = _TaskChannel(self, fl_ctx, lambda: abort_signal.triggered)
        try:
            table = tomllib.loads(self.experiment)
            allowed = load_server_settings(self.kit).limits.code
            reject_foreign_code(table, allowed, "this server", SERVER_FILE)  # before reading it, which imports code
            experiment = read_experiment(table)
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
                request, experiment, channel, self._say, lambda: bool(self._stop_command), self._mark_opened
            ):
                self._update(metrics=metrics)
                self._audit_round(metrics)
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

    def _mark_opened(self) -> None:
        self.opened = True

    def _update(self, **changes: Any) -> None:
        with self._changing:
            self._outcome = self._outcome.replace(**changes)

    def _say(self, line: str) -> None:
        self.logger.info(line)
        line = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {line}"
        with self._changing:
            self._outcome = self._outcome.replace(lines=[*self._outcome.lines, line][-_TAIL:])
            file = self._get_log_file()
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("a", encoding="utf-8") as log:
                log.write(f"{line}\n")
        self._audit("log", line=line)

    def _audit(self, event: str, **fields: Any) -> None:
        """Write a line about this run to the audit log."""
        AuditLog(self.kit).append(event, run=self.run, **fields)

    def _audit_round(self, metrics: Mapping[str, Any]) -> None:
        sites = self._outcome.sites
        fields = {key: value for key, value in metrics.items() if key.startswith("epsilon")}  # privacy spent so far
        self._audit(
            "round",
            round=metrics["round"],
            counted=[sites[client] for client in metrics.get("clients", [])],
            missed=metrics.get("missed", []),
            **fields,
        )

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
            for file in (self.kit / RUNS / self.run / name for name in _PUBLISHED):
                if file.is_file():
                    shutil.copyfile(file, result_folder / file.name)
            shutil.copyfile(self._get_log_file(), result_folder / LOG)
        else:
            write_text(result_folder / LOG, "\n".join([*self._outcome.lines, ""]))
        if self._outcome.has_ended:  # without this file, an admin's command treats the job as lost
            write_text(result_folder / "outcome.json", self._outcome.model_dump_json(indent=2))
        self._audit("published", state=self._outcome.state)
        write_manifest(
            result_folder,
            self.kit,
            AuditLog(self.kit).read_head(),
            run=self.run,
            sites=self._outcome.sites,
            rounds=self._outcome.metrics.get("round", -1) + 1,
            last={key: value for key, value in self._outcome.metrics.items() if key.startswith("epsilon")},
        )


def _get_submitter(fl_ctx: FLContext) -> str:
    meta = fl_ctx.get_prop(FLContextKey.JOB_META) or {}
    return str(meta.get("submitter_name", "")) if isinstance(meta, dict) else ""


@final
class _TaskChannel:
    """A `Channel` that broadcasts the engine's tasks."""

    def __init__(self, controller: Controller, fl_ctx: FLContext, is_aborted: StopRequested) -> None:
        self.controller = controller
        self.fl_ctx = fl_ctx
        self.is_aborted = is_aborted

    def list_connected_sites(self) -> set[str]:
        engine: Any = self.fl_ctx.get_engine()
        get_disconnect_time = self.controller.get_client_disconnect_time
        return {client.name for client in engine.get_clients() if get_disconnect_time(client.name) is None}

    def check_stopped(self) -> None:
        if self.is_aborted():
            raise Stopped("the engine ended the job")

    def ask(
        self, task: str, fields: Mapping[str, Any], arrays: Arrays, sites: Sequence[str], deadline: Deadline
    ) -> Iterator[SiteAnswer]:
        if not sites:
            return
        answers: queue.SimpleQueue[SiteAnswer] = queue.SimpleQueue()

        def receive(client_task: ClientTask, fl_ctx: FLContext) -> None:
            answers.put(_read_answer(client_task))
            client_task.result = None  # pyright: ignore[reportAttributeAccessIssue] - frees a large result

        data = DXO(DataKind.WEIGHTS, data=dict(arrays), meta=dict(fields)).to_shareable()
        engine_task = Task(task, data, timeout=int(deadline.remaining) + 1, result_received_cb=receive)
        self.controller.broadcast(engine_task, self.fl_ctx, targets=list(sites), min_responses=len(sites))
        try:
            for _ in sites:
                answer = self._await_answer(answers, engine_task, deadline)
                if answer is None:
                    return
                yield answer
        finally:
            self.controller.cancel_task(engine_task)

    def _await_answer(
        self, answers: "queue.SimpleQueue[SiteAnswer]", engine_task: Task, deadline: Deadline
    ) -> SiteAnswer | None:
        while True:
            self.check_stopped()
            has_completed = engine_task.completion_status is not None  # it then gets no more answers
            remaining = 0.0 if has_completed else deadline.remaining
            try:
                return answers.get(timeout=min(max(remaining, 0.001), _POLL))
            except queue.Empty:
                if remaining <= 0:
                    return None


def _read_answer(client_task: ClientTask) -> SiteAnswer:
    """Return a site's answer; one that cannot be read becomes an answer that says so."""
    result: Any = client_task.result
    name = client_task.client.name
    try:
        code = result.get_return_code()
        if code != ReturnCode.OK:
            return SiteAnswer(name, {REJECTED: f"the engine reports {code}"}, {})
        message = from_shareable(result)
        return SiteAnswer(name, dict(message.meta), dict(message.data))
    except Exception as error:
        return SiteAnswer(name, {REJECTED: f"its answer cannot be read ({type(error).__name__})"}, {})
