"""Run the command line and measure it from outside: start-up time, time per round, memory."""

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
from process_memory import list_descendants, measure_anonymous, measure_file_cache, measure_pss

HERE = Path(__file__).parent


@dataclass
class RunMeasurement:
    """Measurements of one or several runs."""

    rounds: list[float] = field(default_factory=list)  # seconds, without the first of each run
    starts: list[float] = field(default_factory=list)  # seconds from the command to the first round
    anonymous: int = 0  # peak bytes of anonymous memory
    pss: int = 0  # peak bytes of all memory, including libraries, shared memory counted proportionally
    cache: int = 0  # peak growth of the system's file cache in bytes
    file: int = 0  # bytes of the client states on disk


def measure_run(table: dict[str, Any], workers: int, clients: int, into: RunMeasurement, every: float = 0.1) -> None:
    """Run an experiment and add its measurements to `into`; memory is sampled every `every` seconds."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        folder = Path(name)
        (folder / "experiment.toml").write_text(tomli_w.dumps(table))
        words = ["run", str(folder / "experiment.toml"), "--runs-dir", name, "--name", "one", "--workers", str(workers)]
        before, began, first = measure_file_cache(), time.perf_counter(), None
        process = subprocess.Popen(
            [sys.executable, "-m", "fedcm", *words],
            cwd=HERE,
            env=os.environ | {"GROWTH_CLIENTS": str(clients)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        metrics, sampled = folder / "one" / "metrics.jsonl", 0.0
        while process.poll() is None:
            if first is None and metrics.exists() and metrics.stat().st_size:
                first = time.perf_counter()
            if time.perf_counter() - sampled > every:
                processes = list_descendants(process.pid)
                into.anonymous = max(into.anonymous, sum(map(measure_anonymous, processes)))
                into.pss = max(into.pss, sum(map(measure_pss, processes)))
                into.cache = max(into.cache, measure_file_cache() - before)
                sampled = time.perf_counter()
            time.sleep(0.002 if first is None else 0.02)
        if process.returncode or first is None:
            raise RuntimeError(process.stderr.read().decode() if process.stderr else "")
        seconds = [json.loads(line)["seconds"] for line in metrics.read_text().splitlines()]
        into.rounds += seconds[1:]
        into.starts.append(first - began - seconds[0])
        states = folder / "one" / "clients" / "states.bin"
        into.file = states.stat().st_size if states.exists() else 0
