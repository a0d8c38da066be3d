"""A federation of real processes on this machine: make kits, start the server and sites, watch and kill them.

fedcm federation site ─► keeper ─► the engine ─► its job ─► training
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import psutil
import tomli_w

from fedcm.federation.serve.keeper import adopt_orphans

ADMIN = "lead@example.org"
OTHER_ADMIN = "second@example.org"
SITES = ("a", "b", "c", "d", "e")
PATIENCE = 240.0  # seconds to wait for anything; the machine may be busy
CONNECTED = "Successfully registered client"  # in the output of a site
READY = f"Server started|{CONNECTED}"
PARTS = {  # parts of the command lines of a party's processes
    "engine": ("fedcm.federation.site.engine", "fedcm.federation.gate.engine"),
    "job": ("fed.app.client.worker_process", "fed.app.server.runner_process"),
    "training": ("fedcm.federation.site.trainer",),
}


@dataclass
class CommandResult:
    code: int
    out: str
    err: str


def until(holds: Callable[[], Any], what: str, get_details: Callable[[], str] = str) -> Any:
    """Wait until a function returns something true, and return that."""
    end = time.monotonic() + PATIENCE
    while not (found := holds()):
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not happen in {PATIENCE:g} s\n{get_details()}")
        time.sleep(0.05)
    return found


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "fedcm", *map(str, words)]


def environment(**more: str) -> dict[str, str]:
    if "PYTHONPATH" in more and "PYTHONPATH" in os.environ:
        more["PYTHONPATH"] += os.pathsep + os.environ["PYTHONPATH"]
    return {**os.environ, "FEDCM_WORKERS": "1", "COLUMNS": "200", **more}


def fedcm(*words: object, **more: str) -> CommandResult:
    """Run a command as a user would."""
    done = subprocess.run(
        command(*words), capture_output=True, text=True, env=environment(**more), timeout=PATIENCE * 2, check=False
    )
    return CommandResult(done.returncode, done.stdout, done.stderr)


def free_port() -> int:
    """Return a free port whose next port is free too, for admins."""
    for _ in range(100):
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            with suppress(OSError, OverflowError):
                second.bind(("127.0.0.1", port + 1))
                return port
    raise AssertionError("no two free ports")


def provision(folder: Path, sites: Sequence[str] = SITES) -> Path:
    """Make the kits of a new federation."""
    server = {"host": "localhost", "port": free_port()}
    folder.parent.mkdir(parents=True, exist_ok=True)
    plan = folder.parent / f"{folder.name}.toml"
    plan.write_text(
        tomli_w.dumps({"name": "trial", "sites": list(sites), "admins": [ADMIN, OTHER_ADMIN], "server": server})
    )
    made = fedcm("federation", "init", plan, "-o", folder)
    assert made.code == 0, made.err
    return folder


@final
class Running:
    """A running command and its output so far."""

    def __init__(self, words: Sequence[object], file: Path, **more: str) -> None:
        self.file = file
        with file.open("ab") as stream:
            self.process = psutil.Popen(
                command(*words), stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, env=environment(**more)
            )

    @property
    def output(self) -> str:
        return self.file.read_text(errors="replace")

    def wait_for(self, pattern: str, times: int = 1) -> None:
        def heard() -> bool:
            if len(re.findall(pattern, self.output)) >= times:
                return True
            assert self.process.poll() is None, f"it exited before it printed {pattern!r}\n{self.output}"
            return False

        until(heard, f"{pattern!r}", lambda: self.output)

    def wait(self) -> int:
        """Wait for its end and return the exit code."""
        until(lambda: self.process.poll() is not None, "its end", lambda: self.output)
        return self.process.wait()

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def part(self, name: str) -> psutil.Process:
        """Wait for the newest process below this one that is the engine's, its job's or the training's."""
        return until(lambda: self.find(name), f"the process {name!r}", lambda: self.output)

    def find(self, name: str) -> psutil.Process | None:
        found = []
        for process in self._below():
            with suppress(psutil.Error):
                if any(known in " ".join(process.cmdline()[:4]) for known in PARTS[name]):
                    found.append((process.create_time(), process.pid, process))
        return max(found)[2] if found else None

    def kill(self) -> None:
        """Kill all its processes at once, as if the machine had lost power."""
        everyone = [self.process, *self._below()]
        for process in everyone:
            with suppress(psutil.Error):
                process.suspend()  # so that no process reacts to the end of another
        everyone = [self.process, *self._below()]
        for process in everyone:
            with suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(everyone, timeout=PATIENCE)

    def _below(self) -> list[psutil.Process]:
        with suppress(psutil.Error):
            return self.process.children(recursive=True)
        return []


@final
@dataclass
class Fleet:
    """Kits in a folder, and the commands that were started from them."""

    folder: Path
    running: dict[str, Running] = field(default_factory=dict)
    followers: list[Running] = field(default_factory=list)

    @property
    def admin(self) -> Path:
        return self.folder / "admins" / ADMIN

    @property
    def server(self) -> Path:
        return self.folder / "server"

    def site(self, name: str) -> Path:
        return self.folder / "sites" / name

    def start(self, *sites: str) -> "Fleet":
        """Start the server and these sites, and wait until they are connected."""
        waits = [self.start_server(wait=False), *(self.start_site(name, wait=False) for name in sites)]
        for one in waits:
            one.wait_for(READY)
        return self

    def start_server(self, *, wait: bool = True, **more: str) -> Running:
        return self._start("server", self.server, wait, more)

    def start_site(self, name: str, *, wait: bool = True, **more: str) -> Running:
        return self._start(name, self.site(name), wait, more)

    def _start(self, name: str, kit: Path, wait: bool, more: Mapping[str, str]) -> Running:
        started = Running(["federation", "server" if name == "server" else "site", kit], self._output(name), **more)
        self.running[name] = started
        if wait:
            started.wait_for(READY)
        return started

    def _output(self, name: str) -> Path:
        """Return a new file for every start."""
        return self.folder / f"{name}.{sum(1 for _ in self.folder.glob(f'{name}.*.out'))}.out"

    def deal(self, data: Path, sites: Sequence[str]) -> None:
        """Copy dealt files into the kits."""
        for name in sites:
            shutil.copyfile(data / f"{name}.npz", self.site(name) / "data.npz")
        if (data / "test.npz").exists():
            shutil.copyfile(data / "test.npz", self.server / "test.npz")
            (self.server / "server.toml").write_text('[test]\nsource = "test.npz"\n')

    def call(self, what: str, *words: object) -> CommandResult:
        """Run an admin's command."""
        return fedcm("federation", what, *words, "--kit", self.admin)

    def run(self, experiment: Path, name: str, *words: object) -> CommandResult:
        return self.call("run", experiment, "--name", name, "--runs-dir", self.folder / "runs", *words)

    def follow(self, what: str, *words: object) -> Running:
        """Start an admin's command that follows a run."""
        all_words = ["federation", what, *words, "--kit", self.admin, "--runs-dir", self.folder / "runs"]
        self.followers.append(Running(all_words, self._output("admin")))
        return self.followers[-1]

    def at_server(self, run: str) -> Path:
        return self.server / "runs" / run

    def rounds(self, run: str) -> int:
        """Return the number of rounds on the server's disk."""
        file = self.at_server(run) / "metrics.jsonl"
        return file.read_bytes().count(b"\n") if file.exists() else 0

    def wait_for_round(self, run: str, rounds: int) -> None:
        until(lambda: self.rounds(run) >= rounds, f"round {rounds} of {run}", self.collect_output)

    def collect_output(self) -> str:
        """Return the output of all processes, for the message of a failed test."""
        outs = sorted(self.folder.glob("*.out"))
        return "\n".join(f"--- {out.name}\n{out.read_text(errors='replace')[-3000:]}" for out in outs)


@contextmanager
def fleet_of(kits: Path, folder: Path) -> Iterator[Fleet]:
    """Copy the kits for a test, and kill all processes at its end."""
    shutil.copytree(kits, folder)
    adopt_orphans()  # of killed processes
    before = set(psutil.Process().children(recursive=True))
    try:
        yield Fleet(folder)
    finally:
        while left := [one for one in psutil.Process().children(recursive=True) if one not in before]:
            for process in left:
                with suppress(psutil.Error):
                    process.kill()
            psutil.wait_procs(left, timeout=1)


def experiment_file(path: Path, **changes: Any) -> Path:
    """Write a small experiment over digits, by default for three sites."""
    table: dict[str, Any] = {
        "name": "trial",
        "rounds": 4,
        "seed": 1,
        "data": {"source": "digits"},
        "split": {"kind": "dirichlet", "clients": 3, "concentration": 0.6},
        "model": {"name": "mlp", "hidden": [16]},
        "algorithm": {"name": "fedcm"},
        "client": {"epochs": 1, "batch_size": 16, "lr": 0.1},
        "engine": {"stack": 1, "layout": "channels_last", "compile": "off"},
        "federation": {"classes": 10},
    }
    path.write_text(tomli_w.dumps(table | changes))
    return path


def bits(run: Path) -> str:
    """Return the checksum of a run's final parameters."""
    return json.loads((run / "summary.json").read_text())["params_sha256"]


def lines(run: Path) -> list[Mapping[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
