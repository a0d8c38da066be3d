"""The process in which a site trains, seen from the engine's: what kills it does not kill the engine's.

It is started when it is first needed and again when it has died, and a request that died with it is asked once more:
a round is a function of what was sent and what counted last, so the answer is the one that was lost.
"""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, final

from fedcm.federation.frames import Arrays, receive, send

Say = Callable[[str], None]

_TRIES = 2
_LEAVING = 5.0  # seconds for a process whose pipe has ended
_LOOK = 0.1  # seconds between two looks whether to stop


class Died(Exception):  # noqa: N818
    """The training process ended before it answered."""


class Stopped(Exception):  # noqa: N818
    """Nobody waits for the answer any more."""


@final
class TrainingProcess:
    def __init__(self, kit: Path, opening: Mapping[str, Any], say: Say) -> None:
        """`opening` is told to every new process first."""
        self.kit = kit
        self.opening = opening
        self.say = say
        self._process: subprocess.Popen[bytes] | None = None
        self._requests: BinaryIO | None = None
        self._answers: BinaryIO | None = None

    def ask(
        self, kind: str, words: Mapping[str, Any], arrays: Arrays, stopped: Callable[[], bool]
    ) -> tuple[dict[str, Any], Arrays]:
        """The answer; one that was refused has the sentence under "refused"."""
        ending = ""
        for attempt in range(1, _TRIES + 1):
            try:
                self._start(stopped)
                return self._asked({"kind": kind, **words}, arrays, stopped)
            except (Died, BrokenPipeError, EOFError):
                ending = self._ended()
                self.say(f"the training process {ending}" + (" and is started again" if attempt < _TRIES else ""))
        return {"refused": f"the training process {ending} {_TRIES} times in a row"}, {}

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._ended()

    def _start(self, stopped: Callable[[], bool]) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self.close()
        inlet, requests = os.pipe()
        answers, outlet = os.pipe()
        words = [sys.executable, "-m", "fedcm.federation.site.trainer", str(self.kit), str(inlet), str(outlet)]
        self._process = subprocess.Popen(words, pass_fds=(inlet, outlet), stdin=subprocess.DEVNULL, cwd=self.kit)
        os.close(inlet)
        os.close(outlet)
        self._requests, self._answers = os.fdopen(requests, "wb"), os.fdopen(answers, "rb")
        self._asked({"kind": "open", **self.opening}, {}, stopped)

    def _asked(
        self, words: Mapping[str, Any], arrays: Arrays, stopped: Callable[[], bool]
    ) -> tuple[dict[str, Any], Arrays]:
        assert self._requests is not None
        assert self._answers is not None
        send(self._requests, words, arrays)
        while not select.select([self._answers], [], [], _LOOK)[0]:
            if stopped():
                self.close()
                raise Stopped
        return receive(self._answers)

    def _ended(self) -> str:
        """How it ended."""
        for stream in (self._requests, self._answers):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        self._requests = self._answers = None
        if self._process is None:
            return "was not there"
        try:
            code = self._process.wait(_LEAVING)  # its pipe ends before it does: how is not known yet
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._process = None
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"left with code {code}"
