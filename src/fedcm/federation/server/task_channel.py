"""A `Channel` over the engine: requests to sites are tasks of the engine's controller."""

import queue
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, final

from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller

from fedcm.errors import Stopped
from fedcm.federation.frames import REJECTED, Arrays
from fedcm.federation.gate.sizes import SizeLimit
from fedcm.federation.server.channel import Deadline, SiteAnswer
from fedcm.system.callbacks import StopRequested

_POLL = 0.05  # seconds between checks whether to stop


@final
class TaskChannel:
    """A `Channel` that broadcasts the engine's tasks; its public functions are those of the protocol."""

    def __init__(self, controller: Controller, fl_ctx: FLContext, is_aborted: StopRequested, limit: SizeLimit) -> None:
        self.controller = controller
        self.fl_ctx = fl_ctx
        self.is_aborted = is_aborted
        self.limit = limit
        self._answers = _Answers(())  # to the present task

    def list_connected_sites(self) -> set[str]:
        engine: Any = self.fl_ctx.get_engine()
        get_disconnect_time = self.controller.get_client_disconnect_time
        return {client.name for client in engine.get_clients() if get_disconnect_time(client.name) is None}

    def check_stopped(self) -> None:
        if self.is_aborted():
            raise Stopped("the engine ended the job")

    def limit_replies(self, size: int) -> None:
        self.limit.size = size

    def reject(self, site: str, reason: str) -> bool:
        """Answer the present task for a site; return whether an answer of it was outstanding."""
        return self._answers.add(SiteAnswer(site, {REJECTED: reason}, {}))

    def ask(
        self, task: str, fields: Mapping[str, Any], arrays: Arrays, sites: Sequence[str], deadline: Deadline
    ) -> Iterator[SiteAnswer]:
        if not sites:
            return
        self._answers = answers = _Answers(sites)

        def receive(client_task: ClientTask, fl_ctx: FLContext) -> None:
            answers.add(_read_answer(client_task))
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

    def _await_answer(self, answers: "_Answers", engine_task: Task, deadline: Deadline) -> SiteAnswer | None:
        while True:
            self.check_stopped()
            has_completed = engine_task.completion_status is not None  # it then gets no more answers
            remaining = 0.0 if has_completed else deadline.remaining
            try:
                return answers.queue.get(timeout=min(max(remaining, 0.001), _POLL))
            except queue.Empty:
                if remaining <= 0:
                    return None


@final
class _Answers:
    """The answers to one task, at most one of each site."""

    def __init__(self, sites: Iterable[str]) -> None:
        self.queue: queue.SimpleQueue[SiteAnswer] = queue.SimpleQueue()
        self._outstanding = set(sites)
        self._lock = threading.Lock()

    def add(self, answer: SiteAnswer) -> bool:
        """Take an answer; return whether it is the first one of its site."""
        with self._lock:
            is_first = answer.site in self._outstanding
            self._outstanding.discard(answer.site)
        if is_first:
            self.queue.put(answer)
        return is_first


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
