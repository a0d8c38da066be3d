"""One kit's engine kept running, in the foreground, until somebody asks for its end.

The first signal ends it in peace, the second at once; both leave nothing behind. An engine that dies by itself is
started again, a little later each time. What cannot work is refused before anything starts.
"""

import os
import selectors
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import final

from fedcm.errors import UserError
from fedcm.federation.kit import Kit
from fedcm.federation.readiness import only_one, ready_kit, reject_taken_ports
from fedcm.federation.serve.engine_log import EngineLog

Say = Callable[[str], None]

LAST_WORDS = "last_words.txt"  # what the engine said before it died, of which its own log may have nothing
_MODULES = {"server": "nvflare.private.fed.app.server.server_train", "site": "fedcm.federation.site.engine_site"}
_STARTS = {"server": "fed_server.json", "site": "fed_client.json"}
_UNFIT = (102, 103)  # the engine's exit codes for a component or a configuration that it does not take
_LONGEST_LINE = 2**16
_WITHDRAWN = "shutdown.fl"  # the engine leaves it where an admin has shut it down


@final
@dataclass(frozen=True)
class Patience:
    """In seconds."""

    delays: tuple[float, ...] = (1, 2, 4, 8, 16, 32, 60)  # before the engine is started again
    healthy: float = 60  # after so long the delays begin anew
    grace: int = 15  # from being asked to end to being ended


UNHURRIED = Patience()


def serve(path: Path, kind: str, say: Say, patience: Patience = UNHURRIED) -> int:
    """Runs the kit's engine; the exit code when its end was asked for."""
    kit = ready_kit(path, kind)
    with only_one(kit.path) as lock:
        reject_taken_ports(kit)
        return Supervision(kit, engine_command(kit), say, patience, lock).run()


def engine_command(kit: Kit) -> list[str]:
    name = [f"uid={kit.name}"] if kit.kind == "site" else []
    return [
        *(sys.executable, "-u", "-m", _MODULES[kit.kind], "-m", str(kit.path), "-s", _STARTS[kit.kind]),
        *("--set", "secure_train=true", *name, f"org={kit.organisation}", "config_folder="),
    ]


@final
class Supervision:
    def __init__(self, kit: Kit, command: Sequence[str], say: Say, patience: Patience, lock: int) -> None:
        self.kit = kit
        self.command = command
        self._tell = say
        self.patience = patience
        self.lock = lock
        self._keeper: subprocess.Popen[bytes] | None = None
        self._asked = 0  # signals so far

    def run(self) -> int:
        from fedcm.federation.serve.keeper import adopt_orphans

        adopt_orphans()  # should the keeper be killed, what it kept comes here
        with self._heeding_signals():
            deaths = 0
            while not self._asked:
                self._clear()
                self.say(f"{self.kit.kind} {self.kit.name} of {self.kit.federation} starts")
                started, log = time.monotonic(), EngineLog(self.kit)
                code = self._run_once(log)
                if self._asked:
                    break
                if (self.kit.path / _WITHDRAWN).exists():
                    self.say("shut down by an admin")
                    return 0
                self._note_last_words(log)
                why = f": {log.why()}" if log.why() else ""
                if code in _UNFIT or log.why().startswith("ConfigError"):
                    raise UserError(f"the engine does not take this kit's configuration{why}; see {self._last_words}")
                deaths = 0 if time.monotonic() - started >= self.patience.healthy else deaths
                delay = self.patience.delays[min(deaths, len(self.patience.delays) - 1)]
                deaths += 1
                words = f"its last lines: {self._last_words}"
                self.say(f"the engine {_ending(code)}{why}; starting again in {delay:g} s ({words})")
                self._sleep(delay)
            self._clear()
            self.say("stopped")
        return 0

    def _run_once(self, log: EngineLog) -> int:
        """The engine's exit code, when nothing that it started is left."""
        from fedcm.federation.serve.keeper import end_descendants

        words = [sys.executable, "-m", "fedcm.federation.serve.keeper", str(self.patience.grace), *self.command]
        self._keeper = subprocess.Popen(
            words,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=_environment(self.kit.path, os.environ),
            start_new_session=True,  # Ctrl-C is for this process alone, which then asks
            pass_fds=(self.lock,),
        )
        if self._asked:  # just before it was there to be told
            self._keeper.terminate()
        over = threading.Event()
        reader = threading.Thread(target=self._read, args=(self._keeper, log, over))
        reader.start()
        try:
            return self._keeper.wait()
        finally:
            end_descendants()
            over.set()
            reader.join()
            for stream in (self._keeper.stdin, self._keeper.stdout):
                with suppress(OSError):
                    assert stream is not None
                    stream.close()
            self._keeper = None

    def _read(self, keeper: subprocess.Popen[bytes], log: EngineLog, over: threading.Event) -> None:
        assert keeper.stdout is not None
        descriptor, rest = keeper.stdout.fileno(), b""
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while True:
                ready = selector.select(0.5)
                if not ready:
                    self._say_if(log.while_quiet())
                    if over.is_set():
                        return
                    continue
                some = os.read(descriptor, 65536)
                if not some:
                    return
                *lines, rest = (rest[-_LONGEST_LINE:] + some).split(b"\n")
                for line in lines:
                    self._say_if(log.told(line.decode("utf-8", "replace").rstrip()))

    def say(self, line: str) -> None:
        with suppress(OSError):  # a terminal that is gone is no reason to stop
            self._tell(line)

    def _say_if(self, line: str | None) -> None:
        if line and not self._asked:
            self.say(line)

    @contextmanager
    def _heeding_signals(self) -> Iterator[None]:
        wanted = [number for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if _heeded(number)]
        before = {number: signal.signal(number, self._heed) for number in wanted}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _heed(self, *_: object) -> None:
        self._asked += 1
        keeper = self._keeper
        if keeper is None:
            return
        if self._asked == 1:
            with suppress(OSError):
                os.write(2, b"stopping; once more to stop at once\n")  # print may be busy already
            with suppress(ProcessLookupError):
                os.kill(keeper.pid, signal.SIGTERM)
        elif keeper.stdin is not None:
            with suppress(OSError):
                keeper.stdin.close()  # to the keeper, the same as if this process were gone

    def _sleep(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._asked and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, 0.1))

    @property
    def _last_words(self) -> Path:
        return self.kit.path / LAST_WORDS

    def _clear(self) -> None:
        """What a former engine left: a killed one its temporary files, one that was stopped a note of that."""
        folder = self.kit.path / "tmp"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        (self.kit.path / _WITHDRAWN).unlink(missing_ok=True)

    def _note_last_words(self, log: EngineLog) -> None:
        with suppress(OSError):
            self._last_words.write_text("\n".join(log.last) + "\n", encoding="utf-8")


def _environment(kit: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Fewer arenas keep freed memory from piling up; what is temporary stays in the kit."""
    return {"MALLOC_ARENA_MAX": "4", **environment, "TMPDIR": str(kit / "tmp")}


def _heeded(number: int) -> bool:
    """nohup and the like have asked for the contrary."""
    return not (number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN)


def _ending(code: int) -> str:
    from fedcm.federation.serve.keeper import ENDED_BY

    number = -code if code < 0 else code - ENDED_BY
    names = {int(known): known.name for known in signal.Signals}
    return f"was ended by {names[number]}" if number in names else f"left with code {code}"
