"""The process in which a site trains, as the engine's process sees it; its death does not end the engine's process.

It is started when it is first needed and restarted when it has died, and the request that died with it is repeated
once. A round is a function of the broadcast and of the state that counted last, so the answer is the one that was lost.
"""

import os
import select
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, final

from fedcm.federation.frames import REJECTED, Arrays, receive, send
from fedcm.system.callbacks import Notify, StopRequested
from fedcm.system.processes import describe_exit

_ATTEMPTS = 2
_EXIT_TIMEOUT = 5.0  # seconds for a process whose pipe has closed
_POLL = 0.1  # seconds between checks whether to stop


class RequestAborted(Exception):  # noqa: N818
    """The job was stopped while the training process worked on a request."""


@final
class TrainingProcess:
    """Starts `fedcm.federation.site.trainer` and sends it requests over pipes."""

    def __init__(self, kit: Path, open_fields: Mapping[str, Any], notify: Notify) -> None:
        """Prepare to train with a kit; `open_fields` is the first message to every new process."""
        self.kit = kit
        self.open_fields = open_fields
        self.notify = notify
        self._process: subprocess.Popen[bytes] | None = None
        self._requests: BinaryIO | None = None
        self._answers: BinaryIO | None = None

    def ask(
        self, kind: str, fields: Mapping[str, Any], arrays: Arrays, stop_requested: StopRequested
    ) -> tuple[dict[str, Any], Arrays]:
        """Send a request and return the answer; the key `REJECTED` of an answer says why the request failed.

        Raises:
            RequestAborted: If `stop_requested` became true.
        """
        ending = ""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._start(stop_requested)
                return self._exchange({"kind": kind, **fields}, arrays, stop_requested)
            except (BrokenPipeError, EOFError):
                ending = self._clean_up()
                self.notify(f"the training process {ending}" + (" and is restarted" if attempt < _ATTEMPTS else ""))
        return {REJECTED: f"the training process {ending}, {_ATTEMPTS} times in a row"}, {}

    def close(self) -> None:
        """Kill the process."""
        if self._process is not None:
            self._process.kill()
            self._clean_up()

    def _start(self, stop_requested: StopRequested) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self.close()
        inlet, requests = os.pipe()
        answers, outlet = os.pipe()
        command = [sys.executable, "-m", "fedcm.federation.site.trainer", str(self.kit), str(inlet), str(outlet)]
        self._process = subprocess.Popen(command, pass_fds=(inlet, outlet), stdin=subprocess.DEVNULL, cwd=self.kit)
        os.close(inlet)
        os.close(outlet)
        self._requests, self._answers = os.fdopen(requests, "wb"), os.fdopen(answers, "rb")
        self._exchange({"kind": "open", **self.open_fields}, {}, stop_requested)

    def _exchange(
        self, fields: Mapping[str, Any], arrays: Arrays, stop_requested: StopRequested
    ) -> tuple[dict[str, Any], Arrays]:
        assert self._requests is not None
        assert self._answers is not None
        send(self._requests, fields, arrays)
        answers = select.poll()  # unlike `select`, it works with any number of open files
        answers.register(self._answers, select.POLLIN)
        while not answers.poll(1000 * _POLL):
            if stop_requested():
                self.close()
                raise RequestAborted
        return receive(self._answers)

    def _clean_up(self) -> str:
        """Close the pipes, wait for the process, and return how it ended."""
        for stream in (self._requests, self._answers):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        self._requests = self._answers = None
        if self._process is None:
            return "was not running"
        try:
            code = self._process.wait(_EXIT_TIMEOUT)  # its pipe closes a little before it ends
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._process = None
        return describe_exit(code)
