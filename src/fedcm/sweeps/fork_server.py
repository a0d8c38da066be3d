"""A process that imports modules once and then forks commands, so that each starts without importing them again.

The server is a new process without threads, so its forks are safe; a fork of the caller might wait for a lock that
another thread held. Each fork runs `python -m MODULE ARGUMENTS`. It is the leader of a session of its own. The server
ends with the process that started it, and every fork can notice that (`call_on_parent_exit`).

Messages are lines of JSON. The server receives `{"module", "arguments", "stderr"}` and answers `{"started": PID}`; it
sends `{"ended": PID, "code": CODE}` when a fork has ended.
"""

import contextlib
import importlib
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn, Self, final

from fedcm.system.processes import make_child_environment

_POLL = 0.02  # seconds
_LOST = 1  # the exit code of forks whose server was killed


@final
class ForkServer:
    """A server in a process of its own. Use it in a `with` block, or call `close`.

    Args:
        modules: The modules that the server imports before the first fork.
    """

    def __init__(self, modules: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._codes: dict[int, int] = {}
        self._buffer = b""
        self._has_ended = False

    @property
    def pid(self) -> int:
        """The process id of the server."""
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, module: str, arguments: Sequence[str], stderr: Path) -> "ForkedCommand":
        """Start `python -m MODULE ARGUMENTS` as a fork.

        Args:
            module: The module.
            arguments: Its arguments.
            stderr: The file that its messages are written to.

        Raises:
            OSError: If the server has died.
        """
        assert self._process.stdin is not None
        stderr.touch()  # it exists even if the fork is killed at once
        request = {"module": module, "arguments": list(arguments), "stderr": str(stderr)}
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        while (pid := self._read(timeout=None)) is None:
            if self._has_ended:
                raise ChildProcessError("the process that starts runs was killed")
        return ForkedCommand(self, pid)

    def find_code(self, pid: int) -> int | None:
        """Return the exit code of a fork; None if it is still running."""
        while pid not in self._codes and not self._has_ended and self._is_readable(0):
            self._read(timeout=0)
        return self._codes.get(pid, _LOST if self._has_ended else None)

    def close(self) -> None:
        """End the server; forks that still run are ended by `call_on_parent_exit`."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.wait()
        self._has_ended = True
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _is_readable(self, timeout: float | None) -> bool:
        assert self._process.stdout is not None
        return bool(select.select([self._process.stdout], [], [], timeout)[0])

    def _read(self, timeout: float | None) -> int | None:
        """Read what the server sent; return the id of the fork that it started, if any."""
        assert self._process.stdout is not None
        if self._is_readable(timeout):
            received = os.read(self._process.stdout.fileno(), 2**16)
            self._has_ended = not received
            self._buffer += received
        started = None
        *lines, self._buffer = self._buffer.split(b"\n")
        for message in map(json.loads, lines):
            if "ended" in message:
                self._codes[message["ended"]] = message["code"]
            else:
                started = message["started"]
        return started


@final
class ForkedCommand:
    """A command that a `ForkServer` started: the part of `subprocess.Popen` that callers use."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._server = server

    def poll(self) -> int | None:
        """Return the exit code; None if the command is still running, and negative after a signal."""
        if self.returncode is None:
            self.returncode = self._server.find_code(self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the command and return its exit code."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("a forked command", timeout or 0.0)
            time.sleep(_POLL)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal to the command if it is still running."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the command with SIGKILL."""
        self.send_signal(signal.SIGKILL)


def _serve(modules: Sequence[str]) -> None:
    """In the server: import the modules, then fork what is asked for until the caller closes the connection."""
    answers = os.dup(1)
    os.dup2(2, 1)  # what a module prints while it is imported
    os.environ |= make_child_environment()  # the forks' parent is this process
    for module in modules:
        importlib.import_module(module)
    running: set[int] = set()
    buffer = b""
    while True:
        if select.select([0], [], [], _POLL if running else None)[0]:
            received = os.read(0, 2**16)
            if not received:
                return
            *lines, buffer = (buffer + received).split(b"\n")
            for request in map(json.loads, lines):
                pid = os.fork()
                if pid == 0:
                    os.close(answers)
                    _run(**request)
                running.add(pid)
                _send(answers, {"started": pid})
        for pid in sorted(running):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                running.remove(pid)
                _send(answers, {"ended": pid, "code": os.waitstatus_to_exitcode(status)})


def _send(answers: int, message: dict[str, Any]) -> None:
    os.write(answers, json.dumps(message).encode() + b"\n")  # short, so it is one write


def _run(module: str, arguments: list[str], stderr: str) -> NoReturn:
    """In a fork: run the module as a command and exit."""
    code: Any = 1
    try:
        os.setsid()
        nothing, messages = (
            os.open(os.devnull, os.O_RDWR),
            os.open(stderr, os.O_WRONLY),
        )
        for descriptor, source in ((0, nothing), (1, nothing), (2, messages)):
            os.dup2(source, descriptor)
        sys.argv = [module, *arguments]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code
    except BaseException:
        sys.excepthook(*sys.exc_info())  # pyright: ignore[reportArgumentType]
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    _serve(sys.argv[1:])
