"""The server's end of the engine: a job that runs the round loop and carries its questions to the sites as tasks."""

import queue
import shutil
import threading
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from fedcm.federation.frames import Arrays
from fedcm.federation.outcome import LOG, RESULT, Outcome
from fedcm.federation.server.channel import Answer, Deadline
from fedcm.federation.server.leading import RUNS, Begun, lead
from fedcm.federation.server.server_settings import FILE as SETTINGS
from fedcm.federation.server.server_settings import load_server_settings
from fedcm.federation.site_settings import reject_foreign_code
from fedcm.runs.starting import reject_unusable_name
from fedcm.system.files import write_text

ASK = "fedcm"  # the topic under which an admin asks about a run
_LOGS = "logs"  # in the server's kit: what happened in each run, a line each
_PUBLISHED = (
    "experiment.toml",
    "provenance.json",
    "metrics.jsonl",
    "summary.json",
    "model.safetensors",
    "federation.json",
)
_LOOK = 0.05  # seconds between two looks whether to stop
_TAIL = 200  # lines of the log that are told


@final
class FederatedTraining(Controller):
    def __init__(self, run: str, experiment: str, go_on: bool = False, task_check_period: float = 0.05) -> None:
        """`run` is its name in the server's kit, `experiment` its TOML with every site named; `go_on` says whether it
        may be there already."""
        super().__init__(task_check_period=task_check_period)
        reject_unusable_name(run)  # files are named after it, and a job can be made by hand
        self.run = run
        self.experiment = experiment
        self.go_on = go_on
        self.led = False  # this job has the run in hand: what is in its folder is this job's to publish
        self._outcome = Outcome(run=run, state="starting")
        self._changing = threading.Lock()  # late answers are told from the engine's own threads
        self._asked = ""  # by an admin: "stop", or "pause" to go on in another job
        self._channel: _Tasks | None = None

    def start_controller(self, fl_ctx: FLContext) -> None:
        engine: Any = fl_ctx.get_engine()
        self.kit = Path(engine.get_workspace().get_root_dir())
        engine.register_app_command(ASK, self._told)

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        self._channel = channel = _Tasks(self, fl_ctx, lambda: abort_signal.triggered)
        try:
            table = tomllib.loads(self.experiment)
            allowed = load_server_settings(self.kit).limits.code
            reject_foreign_code(table, allowed, "this server", SETTINGS)  # reading one imports what it names
            experiment = read_experiment(table)
            self._now(state="running", rounds=experiment.rounds, sites=sorted(experiment.federation.sites))
            begun = Begun(self.kit, self.run, _submitter(fl_ctx), go_on=self.go_on)
            for metrics in lead(begun, experiment, channel, self._say, lambda: bool(self._asked), self._has_it):
                self._now(metrics=metrics)
            self._now(state="finished")
        except Stopped as stopped:
            if abort_signal.triggered and not self._asked:
                self._say(f"the engine ended the job of {self.run}; the run can go on in another")
                self._publish(fl_ctx)
                return
            self._now(state="paused" if self._asked == "pause" else "stopped", why=str(stopped))
        except Diverged as reason:
            self._now(state="diverged", why=str(reason))
        except Exception as refusal:  # one that left this function would be known to nobody but the engine's log
            self.logger.exception("the run failed")
            self._now(state="failed", why=" ".join(str(refusal).split()) or type(refusal).__name__)
        self._say(f"run {self.run} {self._outcome.state}" + (f": {self._outcome.why}" if self._outcome.why else ""))
        self._publish(fl_ctx)
        if self._outcome.state in ("failed", "diverged"):
            self.system_panic(self._outcome.why, fl_ctx)  # so that the engine's own word for the job says it too

    def stop_controller(self, fl_ctx: FLContext) -> None:
        pass

    def process_result_of_unknown_task(
        self, client: Client, task_name: str, client_task_id: str, result: Shareable, fl_ctx: FLContext
    ) -> None:
        self._say(f"{client.name} answered too late and does not count")

    def _has_it(self) -> None:
        self.led = True

    def _now(self, **changes: Any) -> None:
        with self._changing:
            self._outcome = self._outcome.at(**changes)

    def _say(self, line: str) -> None:
        self.logger.info(line)
        line = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {line}"
        with self._changing:
            self._outcome = self._outcome.at(lines=[*self._outcome.lines, line][-_TAIL:])
            file = self._log_file()
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("a", encoding="utf-8") as log:
                log.write(f"{line}\n")

    def _told(self, topic: str, asked: Any, fl_ctx: FLContext) -> dict[str, Any]:
        """What an admin may ask of a run that goes on: how far it is; or to end this job when its round is done."""
        what = asked.get("what") if isinstance(asked, dict) else None
        if what in ("stop", "pause") and self._asked != "stop":
            self._asked = what
        there = set() if self._channel is None else self._channel.reachable()
        with self._changing:
            lost = self._outcome.metrics.get("lost", [])  # connected perhaps, and not heard of in this job
            return self._outcome.at(absent=sorted((set(self._outcome.sites) - there) | set(lost))).model_dump()

    def _log_file(self) -> Path:
        return self.kit / _LOGS / f"{self.run}.log"

    def _publish(self, fl_ctx: FLContext) -> None:
        """What an admin can fetch goes where the engine takes a job's results from."""
        engine: Any = fl_ctx.get_engine()
        place = Path(engine.get_workspace().get_run_dir(fl_ctx.get_job_id())) / RESULT
        place.mkdir(parents=True, exist_ok=True)
        if self.led:
            for file in (self.kit / RUNS / self.run / name for name in _PUBLISHED):
                if file.is_file():
                    shutil.copyfile(file, place / file.name)
            shutil.copyfile(self._log_file(), place / LOG)
        else:
            write_text(place / LOG, "\n".join([*self._outcome.lines, ""]))
        if self._outcome.over:  # without it, whoever follows the run takes the job for lost
            write_text(place / "outcome.json", self._outcome.model_dump_json(indent=2))


def _submitter(fl_ctx: FLContext) -> str:
    meta = fl_ctx.get_prop(FLContextKey.JOB_META) or {}
    return str(meta.get("submitter_name", "")) if isinstance(meta, dict) else ""


@final
class _Tasks:
    """The engine's task plane as a channel."""

    def __init__(self, controller: Controller, fl_ctx: FLContext, aborted: Callable[[], bool]) -> None:
        self.controller = controller
        self.fl_ctx = fl_ctx
        self.aborted = aborted

    def reachable(self) -> set[str]:
        engine: Any = self.fl_ctx.get_engine()
        gone = self.controller.get_client_disconnect_time
        return {client.name for client in engine.get_clients() if gone(client.name) is None}

    def reject_to_go_on(self) -> None:
        if self.aborted():
            raise Stopped("the engine ended the job")

    def ask(
        self, task: str, words: Mapping[str, Any], arrays: Arrays, sites: Sequence[str], deadline: Deadline
    ) -> Iterator[Answer]:
        if not sites:
            return
        answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()

        def received(client_task: ClientTask, fl_ctx: FLContext) -> None:
            answers.put(_answer(client_task))
            client_task.result = None  # pyright: ignore[reportAttributeAccessIssue] - a large one need not stay

        data = DXO(DataKind.WEIGHTS, data=dict(arrays), meta=dict(words)).to_shareable()
        standing = Task(task, data, timeout=int(deadline.left) + 1, result_received_cb=received)
        self.controller.broadcast(standing, self.fl_ctx, targets=list(sites), min_responses=len(sites))
        try:
            for _ in sites:
                answer = self._next(answers, standing, deadline)
                if answer is None:
                    return
                yield answer
        finally:
            self.controller.cancel_task(standing)

    def _next(self, answers: "queue.SimpleQueue[Answer]", standing: Task, deadline: Deadline) -> Answer | None:
        while True:
            self.reject_to_go_on()
            left = deadline.left if standing.completion_status is None else 0.0  # nobody is left who could answer
            try:
                return answers.get(timeout=min(max(left, 0.001), _LOOK))
            except queue.Empty:
                if left <= 0:
                    return None


def _answer(given: ClientTask) -> Answer:
    """Whatever came back: what is no message at all is a refusal."""
    result: Any = given.result
    name = given.client.name
    try:
        code = result.get_return_code()
        if code != ReturnCode.OK:
            return Answer(name, {"refused": f"the engine reports {code}"}, {})
        message = from_shareable(result)
        return Answer(name, dict(message.meta), dict(message.data))
    except Exception as error:
        return Answer(name, {"refused": f"its answer cannot be read ({type(error).__name__})"}, {})
