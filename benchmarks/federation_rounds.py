"""Measure the overhead of a round in a real federation: `make bench-federation` (ten minutes).

Three sites and a server run as processes on this machine, with mutual TLS on loopback and FedCM: two vectors down, one
up. The overhead of a round is its time at the server minus the slowest site's local work. It includes messages, checks,
the mean, the checkpoint on the disk and the waiting between them. The first round, in which sites load torch, is left
out.
"""

import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
from pages import describe_machine
from process_memory import measure_anonymous

SITES = ["a", "b", "c"]
RESULTS = Path(__file__).parent / "FEDERATION.md"
NEWLINE = "\n"


class Case(NamedTuple):
    """One model and its settings."""

    name: str
    model: str
    shape: tuple[int, ...]
    rounds: int
    settings: tuple[str, ...]
    target: float | None  # seconds per round


CASES = [
    Case("softmax regression, 650 parameters", "linear", (64,), 60, (), 0.6),
    Case("ResNet-18, 11.2 million parameters", "resnet18", (3, 32, 32), 12, (), 7.0),
    Case(
        "ResNet-18, all links bfloat16",
        "resnet18",
        (3, 32, 32),
        12,
        ("federation.downlink=bfloat16", "federation.momentum=bfloat16", "federation.uplink=bfloat16"),
        None,
    ),
]


def main() -> None:
    rows, memories = [], {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        run_fedcm(folder, "init", write_plan(folder), "-o", "fed")
        for case in CASES:
            write_data(folder, case)
            with run_federation(folder):
                lines, memory = measure_case(folder, case)
            rows.append(format_row(case, lines))
            memories[case.name] = memory
            print(rows[-1], flush=True)
    RESULTS.write_text(format_page(rows, memories), encoding="utf-8")


def write_plan(folder: Path) -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    text = f'name = "bench"\nsites = {json.dumps(SITES)}\nadmins = ["lead@example.org"]\n'
    (folder / "PLAN.toml").write_text(f'{text}[server]\nhost = "127.0.0.1"\nport = {port}\n')
    return "PLAN.toml"


def write_data(folder: Path, case: Case) -> None:
    """Write the least possible local work: one batch of four examples per site."""
    generator = np.random.default_rng(0)
    for site in SITES:
        x = generator.standard_normal((4, *case.shape), dtype=np.float32)
        np.savez(folder / "fed" / "sites" / site / "data.npz", x=x, y=np.arange(4) % 2 + 8)
    settings = f'name = "bench"\nrounds = {case.rounds}\n[model]\nname = "{case.model}"\n[algorithm]\nname = "fedcm"\n'
    (folder / "bench.toml").write_text(settings + "[client]\nlr = 0.001\n")


@contextlib.contextmanager
def run_federation(folder: Path) -> Iterator[None]:
    """Run the server and all sites until the block ends."""
    words = [["server", "fed/server"], *[["site", f"fed/sites/{site}"] for site in SITES]]
    log = (folder / "log").open("ab")
    parties = [subprocess.Popen([*make_command(), *each], cwd=folder, stderr=log) for each in words]
    try:
        deadline = time.monotonic() + 120
        while (folder / "log").read_text().count("Successfully registered client") < len(SITES):
            if time.monotonic() > deadline:
                raise SystemExit((folder / "log").read_text())
            time.sleep(0.2)
        yield
    finally:
        for party in parties:
            party.send_signal(signal.SIGTERM)
        for party in parties:
            party.wait(timeout=60)
        log.close()
        (folder / "log").unlink()


def measure_case(folder: Path, case: Case) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Return the rounds without the first, and the peak memory of each kind of process in MiB."""
    name = f"bench-{CASES.index(case)}"
    words = ["run", "bench.toml", "--kit", "fed/admins/lead@example.org", "--name", name, "--runs-dir", "runs"]
    settings = [word for setting in case.settings for word in ("--set", setting)]
    run = subprocess.Popen([*make_command(), *words, *settings], cwd=folder, stdout=subprocess.DEVNULL)
    memory: dict[str, float] = {}
    while run.poll() is None:
        for kind, size in measure_memory(folder).items():
            memory[kind] = max(memory.get(kind, 0.0), size)
        time.sleep(0.5)
    if run.returncode:
        raise SystemExit(f"{case.name}: the run ended with exit code {run.returncode}")
    lines = [json.loads(line) for line in (folder / "runs" / name / "metrics.jsonl").read_text().splitlines()]
    return lines[1:], memory


def measure_memory(folder: Path) -> dict[str, float]:
    """Return the MiB of the largest process of each kind."""
    sizes: dict[str, float] = {}
    for process in psutil.process_iter(["cmdline"]):
        words = " ".join(process.info["cmdline"] or ())
        if str(folder) not in words:
            continue
        party = "server" if "/fed/server" in words else "site"
        kind = next((kind for mark, kind in KINDS.items() if mark in words), None)
        if kind is not None:
            name = f"{party}: {kind}"
            sizes[name] = max(sizes.get(name, 0.0), measure_anonymous(process.pid) / 2**20)
    return sizes


KINDS = {
    "federation.site.trainer": "training",
    "runner_process": "the engine's job",
    "worker_process": "the engine's job",
    "server_train": "the engine",
    "federation.site.engine": "the engine",
}


def format_row(case: Case, lines: list[dict[str, Any]]) -> str:
    overhead = sorted(line["seconds"] - line["local_seconds"] for line in lines)
    middle, low, high = statistics.median(overhead), overhead[len(overhead) // 10], overhead[-1 - len(overhead) // 10]
    target = "–" if case.target is None else f"≤ {case.target:g}"
    bytes_ = (lines[0]["bytes_down"] + lines[0]["bytes_up"]) / len(SITES) / 2**20
    return f"| {case.name} | {len(lines)} | {bytes_:.3g} | {middle:.2f} ({low:.2f}–{high:.2f}) | {target} |"


def format_page(rows: list[str], memories: dict[str, dict[str, float]]) -> str:
    kinds = sorted({kind for memory in memories.values() for kind in memory})
    table = [
        " | ".join(["", kind, *[f"{memory.get(kind, 0):.0f}" for memory in memories.values()], ""]).strip()
        for kind in kinds
    ]
    return f"""# What a round over a real federation costs

Written by `make bench-federation`. {describe_machine()}

A server and three sites run as processes on one machine, with mutual TLS on loopback and FedCM. The overhead is a
round's time at the server minus the slowest site's local work: the median, with the 10th and 90th percentiles. "MiB per
site" is the traffic down and up per round.

| model | rounds | MiB per site | overhead per round, s | target |
|---|---:|---:|---:|---:|
{NEWLINE.join(rows)}

Peak memory of the largest process of each kind, in MiB (anonymous memory, sampled every half second; shared memory is
divided among the processes that share it):

| process | {" | ".join(memories)} |
|---|{"---:|" * len(memories)}
{NEWLINE.join(table)}
"""


def run_fedcm(folder: Path, *words: str) -> None:
    subprocess.run([*make_command(), *words], cwd=folder, check=True)


def make_command() -> list[str]:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    return [sys.executable, "-m", "fedcm", "federation"]


if __name__ == "__main__":
    main()
