"""Keep the engine of one kit running in the foreground until the operator stops it.

The first signal stops the engine gracefully, the second at once; both leave no process behind. An engine that dies by
itself is restarted, with growing delays. A kit that cannot work is rejected before anything starts.
"""

import os
import selectors
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import final

from fedcm.errors import UserError
from fedcm.federation.check.clock import find_invalid_certificate
from fedcm.federation.file_modes import make_private, private_files, reject_exposed_keys, reject_exposed_states
from fedcm.federation.kit import START_FILES, Kit
from fedcm.federation.readiness import (
    lock_kit,
    read_servable_kit,
    reject_bad_members,
    reject_bad_state_key,
    reject_taken_ports,
)
from fedcm.federation.serve.cleaning import clean_kit
from fedcm.federation.serve.engine_log import EngineLog, is_end_of_job
from fedcm.system.callbacks import Notify
from fedcm.system.processes import describe_exit

LAST_LINES = "last_words.txt"  # the engine's output before it died, which its own log may lack
_MODULES = {"server": "fedcm.federation.gate.engine", "site": "fedcm.federation.site.engine"}
_BAD_CONFIGURATION = (102, 103)  # the engine's exit codes for a bad component or a bad configuration
_MAX_LINE = 2**16
_SHUTDOWN_NOTE = "shutdown.fl"  # the engine writes it when an admin shuts it down


@final
@dataclass(frozen=True)
class SupervisorTimes:
    """Durations in seconds."""

    delays: tuple[float, ...] = (1, 2, 4, 8, 16, 32, 60)  # before each restart
    healthy: float = 60  # after this long, the delays begin with the first one again
    grace: int = 15  # from asking the engine to end to killing it


DEFAULT_TIMES = SupervisorTimes()


def serve(path: Path, kind: str, notify: Notify, times: SupervisorTimes = DEFAULT_TIMES) -> int:
    """Run the engine of a server's or site's kit until it is stopped.

    Everything that it writes is private, and older files of the kit are made private first.

    Args:
        path: The kit's folder.
        kind: "server" or "site".
        notify: Called with each line for the operator.
        times: Delays and limits.

    Returns:
        The exit code of the command.

    Raises:
        UserError: If the kit cannot be served, others can read its private key or its states, the key of its client
            states cannot be used, or the engine rejects its configuration.
    """
    kit = read_servable_kit(path, kind)
    reject_exposed_keys(kit.path)
    reject_bad_state_key(kit)
    with private_files(), lock_kit(kit.path) as lock:
        reject_taken_ports(kit)
        for sentence in (make_private(kit.path).sentence, find_invalid_certificate(kit, ask_server=False)):
            if sentence:
                notify(sentence)
        reject_exposed_states(kit.path)
        reject_bad_members(kit)
        return Supervisor(kit, make_engine_command(kit), notify, times, lock).run()


def make_engine_command(kit: Kit) -> list[str]:
    """Return the command that starts the engine of a kit."""
    name = [f"uid={kit.name}"] if kit.kind == "site" else []
    return [
        *(sys.executable, "-u", "-m", _MODULES[kit.kind], "-m", str(kit.path), "-s", START_FILES[kit.kind]),
        *("--set", "secure_train=true", *name, f"org={kit.organisation}", "config_folder="),
    ]


@final
class Supervisor:
    """Runs the engine through a keeper process, shows its log, and restarts it when it dies."""

    def __init__(self, kit: Kit, command: Sequence[str], notify: Notify, times: SupervisorTimes, lock: int) -> None:
        """Prepare to run `command`; `lock` is the descriptor of the kit's lock, which the keeper inherits."""
        self.kit = kit
        self.command = command
        self.times = times
        self.lock = lock
        self._print = notify
        self._keeper: subprocess.Popen[bytes] | None = None
        self._signals = 0  # received so far

    def run(self) -> int:
        """Run the engine, restarting it as needed, until a signal or an admin stops it; return the exit code."""
        from fedcm.federation.serve.keeper import adopt_orphans

        adopt_orphans()  # in case the keeper is killed
        with self._handle_signals():
            deaths = 0
            while not self._signals:
                self._clean_up()
                self.notify(f"{self.kit.kind} {self.kit.name} of {self.kit.federation} starts")
                started, log = time.monotonic(), EngineLog(self.kit, self._explain_silence)
                code = self._run_once(log)
                if self._signals:
                    break
                if (self.kit.path / _SHUTDOWN_NOTE).exists():
                    self.notify("shut down by an admin")
                    return 0
                self._write_last_lines(log)
                reason = f": {log.last_error}" if log.last_error else ""
                file = self.kit.path / LAST_LINES
                if code in _BAD_CONFIGURATION or log.last_error.startswith("ConfigError"):
                    raise UserError(f"the engine rejects this kit's configuration{reason}; see {file}")
                deaths = 0 if time.monotonic() - started >= self.times.healthy else deaths
                delay = self.times.delays[min(deaths, len(self.times.delays) - 1)]
                deaths += 1
                self.notify(
                    f"the engine {_describe_end(code)}{reason}; restart in {delay:g} s (its last lines: {file})"
                )
                self._sleep(delay)
            self._clean_up()
            self.notify("stopped")
        return 0

    def _explain_silence(self) -> str:
        """Say why a site may get no answer from its server, if certificates and clock show it."""
        return find_invalid_certificate(self.kit, ask_server=True)

    def _run_once(self, log: EngineLog) -> int:
        """Return the engine's exit code once none of its processes is left."""
        from fedcm.federation.serve.keeper import end_descendants

        keeper_command = [sys.executable, "-m", "fedcm.federation.serve.keeper", str(self.times.grace), *self.command]
        self._keeper = subprocess.Popen(
            keeper_command,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=_make_environment(self.kit.path, os.environ),
            start_new_session=True,  # Ctrl-C reaches only this process, which then stops the keeper
            pass_fds=(self.lock,),
        )
        if self._signals:  # the signal came before there was a keeper to stop
            self._keeper.terminate()
        ended = threading.Event()
        reader = threading.Thread(target=self._read_output, args=(self._keeper, log, ended))
        reader.start()
        try:
            return self._keeper.wait()
        finally:
            end_descendants()
            ended.set()
            reader.join()
            for stream in (self._keeper.stdin, self._keeper.stdout):
                with suppress(OSError):
                    assert stream is not None
                    stream.close()
            self._keeper = None

    def _read_output(self, keeper: subprocess.Popen[bytes], log: EngineLog, ended: threading.Event) -> None:
        assert keeper.stdout is not None
        descriptor, rest = keeper.stdout.fileno(), b""
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while True:
                if not selector.select(0.5):
                    if ended.is_set():
                        return
                    continue
                data = os.read(descriptor, 65536)
                if not data:
                    return
                *lines, rest = (rest[-_MAX_LINE:] + data).split(b"\n")
                for line in lines:
                    shown = log.filter_line(line.decode("utf-8", "replace").rstrip())
                    if shown and not self._signals:
                        self.notify(shown)
                        if is_end_of_job(shown):
                            self._clean_up_jobs()

    def notify(self, line: str) -> None:
        """Show a line to the operator; a closed terminal is not an error."""
        with suppress(OSError):
            self._print(line)

    @contextmanager
    def _handle_signals(self) -> Iterator[None]:
        numbers = [number for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if not _is_ignored(number)]
        before = {number: signal.signal(number, self._stop) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self, *_: object) -> None:
        self._signals += 1
        keeper = self._keeper
        if keeper is None:
            return
        if self._signals == 1:
            with suppress(OSError):
                os.write(2, b"stopping; once more to stop at once\n")  # print is not safe in a signal handler
            with suppress(ProcessLookupError):
                os.kill(keeper.pid, signal.SIGTERM)
        elif keeper.stdin is not None:
            with suppress(OSError):
                keeper.stdin.close()  # the keeper kills everything, as if this process had ended

    def _sleep(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._signals and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, 0.1))

    def _clean_up(self) -> None:
        """Remove temporary files, the shutdown note of a previous engine, and what its jobs left behind."""
        folder = self.kit.path / "tmp"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        (self.kit.path / _SHUTDOWN_NOTE).unlink(missing_ok=True)
        for sentence in clean_kit(self.kit, idle=True):
            self.notify(sentence)

    def _clean_up_jobs(self) -> None:
        """Remove what ended jobs left behind, while the engine runs."""
        from fedcm.federation.serve.keeper import list_command_lines

        for sentence in clean_kit(self.kit, list_command_lines(), idle=False):
            self.notify(sentence)

    def _write_last_lines(self, log: EngineLog) -> None:
        with suppress(OSError):
            (self.kit.path / LAST_LINES).write_text("\n".join(log.last_lines) + "\n", encoding="utf-8")


def _make_environment(kit: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Limit malloc's arenas, so that freed memory does not pile up, and keep temporary files in the kit."""
    return {"MALLOC_ARENA_MAX": "4", **environment, "TMPDIR": str(kit / "tmp")}


def _is_ignored(number: int) -> bool:
    """Return whether this is SIGHUP and nohup, or a similar command, has set it to be ignored."""
    return number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN


def _describe_end(code: int) -> str:
    from fedcm.federation.serve.keeper import SIGNAL_EXIT

    number = code - SIGNAL_EXIT
    return describe_exit(-number if number in set(signal.Signals) else code)
