"""A run of the command line, watched from outside: how long it takes to start and a round takes, how much memory."""

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli_w
from process_memory import cached, own, shares, tree

HERE = Path(__file__).parent


@dataclass
class Measured:
    rounds: list[float] = field(default_factory=list)  # seconds, without each run's first
    starts: list[float] = field(default_factory=list)  # seconds from the command to the first round
    own: int = 0  # peak, bytes that are no file's
    shares: int = 0  # peak, bytes: proportional shares, those of libraries' files too
    cache: int = 0  # peak growth of the system's file cache, bytes
    file: int = 0  # what clients keep, bytes on disk


def run(table: dict[str, Any], workers: int, clients: int, into: Measured, every: float = 0.1) -> None:
    """One run of the command line, watched from outside."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        folder = Path(name)
        (folder / "experiment.toml").write_text(tomli_w.dumps(table))
        words = ["run", str(folder / "experiment.toml"), "--runs-dir", name, "--name", "one", "--workers", str(workers)]
        before, began, first = cached(), time.perf_counter(), None
        process = subprocess.Popen(
            [sys.executable, "-m", "fedcm", *words],
            cwd=HERE,
            env=os.environ | {"GROWTH_CLIENTS": str(clients)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        metrics, watched = folder / "one" / "metrics.jsonl", 0.0
        while process.poll() is None:
            if first is None and metrics.exists() and metrics.stat().st_size:
                first = time.perf_counter()
            if time.perf_counter() - watched > every:
                processes = tree(process.pid)
                into.own = max(into.own, sum(map(own, processes)))
                into.shares = max(into.shares, sum(map(shares, processes)))
                into.cache = max(into.cache, cached() - before)
                watched = time.perf_counter()
            time.sleep(0.002 if first is None else 0.02)
        if process.returncode or first is None:
            raise RuntimeError(process.stderr.read().decode() if process.stderr else "")
        seconds = [json.loads(line)["seconds"] for line in metrics.read_text().splitlines()]
        into.rounds += seconds[1:]
        into.starts.append(first - began - seconds[0])
        states = folder / "one" / "clients" / "states.bin"
        into.file = states.stat().st_size if states.exists() else 0
