"""What a round costs over a real federation beside the sites' own work: `make bench-federation` (ten minutes).

Three sites and a server as processes on this machine, mutual TLS on loopback, FedCM: two vectors down, one up. The
overhead of a round is its time at the server less the slowest site's own work, so it holds messages, checks, the mean,
the checkpoint on the disk and the waiting between them. The first round, in which sites load torch, is left out.
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
from pages import machine
from process_memory import own

SITES = ["a", "b", "c"]
RESULTS = Path(__file__).parent / "FEDERATION.md"
NEWLINE = "\n"


class Case(NamedTuple):
    name: str
    model: str
    shape: tuple[int, ...]
    rounds: int
    settings: tuple[str, ...]
    target: float | None  # seconds a round


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
        fedcm(folder, "init", plan(folder), "-o", "fed")
        for case in CASES:
            write_data(folder, case)
            with running(folder):
                lines, memory = measured(folder, case)
            rows.append(row(case, lines))
            memories[case.name] = memory
            print(rows[-1], flush=True)
    RESULTS.write_text(page(rows, memories), encoding="utf-8")


def plan(folder: Path) -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    text = f'name = "bench"\nsites = {json.dumps(SITES)}\nadmins = ["lead@example.org"]\n'
    (folder / "PLAN.toml").write_text(f'{text}[server]\nhost = "127.0.0.1"\nport = {port}\n')
    return "PLAN.toml"


def write_data(folder: Path, case: Case) -> None:
    """As little local work as there can be: one batch of four examples."""
    draw = np.random.default_rng(0)
    for site in SITES:
        x = draw.standard_normal((4, *case.shape), dtype=np.float32)
        np.savez(folder / "fed" / "sites" / site / "data.npz", x=x, y=np.arange(4) % 2 + 8)
    settings = f'name = "bench"\nrounds = {case.rounds}\n[model]\nname = "{case.model}"\n[algorithm]\nname = "fedcm"\n'
    (folder / "bench.toml").write_text(settings + "[client]\nlr = 0.001\n")


@contextlib.contextmanager
def running(folder: Path) -> Iterator[None]:
    words = [["server", "fed/server"], *[["site", f"fed/sites/{site}"] for site in SITES]]
    log = (folder / "log").open("ab")
    parties = [subprocess.Popen([*command(), *each], cwd=folder, stderr=log) for each in words]
    try:
        deadline = time.monotonic() + 120
        while (folder / "log").read_text().count("connected to the server") < len(SITES):
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


def measured(folder: Path, case: Case) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """The rounds, and what the processes held at most."""
    name = f"bench-{CASES.index(case)}"
    words = ["run", "bench.toml", "--kit", "fed/admins/lead@example.org", "--name", name, "--runs-dir", "runs"]
    settings = [word for setting in case.settings for word in ("--set", setting)]
    run = subprocess.Popen([*command(), *words, *settings], cwd=folder, stdout=subprocess.DEVNULL)
    memory: dict[str, float] = {}
    while run.poll() is None:
        for kind, size in held(folder).items():
            memory[kind] = max(memory.get(kind, 0.0), size)
        time.sleep(0.5)
    if run.returncode:
        raise SystemExit(f"{case.name}: the run left with code {run.returncode}")
    lines = [json.loads(line) for line in (folder / "runs" / name / "metrics.jsonl").read_text().splitlines()]
    return lines[1:], memory


def held(folder: Path) -> dict[str, float]:
    """MiB by kind of process: the largest of that kind."""
    sizes: dict[str, float] = {}
    for process in psutil.process_iter(["cmdline"]):
        words = " ".join(process.info["cmdline"] or ())
        if str(folder) not in words:
            continue
        at = "server" if "/fed/server" in words else "site"
        kind = next((kind for mark, kind in KINDS.items() if mark in words), None)
        if kind is not None:
            name = f"{at}: {kind}"
            sizes[name] = max(sizes.get(name, 0.0), own(process.pid) / 2**20)
    return sizes


KINDS = {
    "federation.trainer": "training",
    "runner_process": "the engine's job",
    "worker_process": "the engine's job",
    "server_train": "the engine",
    "client_train": "the engine",
}


def row(case: Case, lines: list[dict[str, Any]]) -> str:
    overhead = sorted(line["seconds"] - line["local_seconds"] for line in lines)
    middle, low, high = statistics.median(overhead), overhead[len(overhead) // 10], overhead[-1 - len(overhead) // 10]
    target = "–" if case.target is None else f"≤ {case.target:g}"
    bytes_ = (lines[0]["bytes_down"] + lines[0]["bytes_up"]) / len(SITES) / 2**20
    return f"| {case.name} | {len(lines)} | {bytes_:.3g} | {middle:.2f} ({low:.2f}–{high:.2f}) | {target} |"


def page(rows: list[str], memories: dict[str, dict[str, float]]) -> str:
    kinds = sorted({kind for memory in memories.values() for kind in memory})
    table = [
        " | ".join(["", kind, *[f"{memory.get(kind, 0):.0f}" for memory in memories.values()], ""]).strip()
        for kind in kinds
    ]
    return f"""# What a round over a real federation costs

Written by `make bench-federation`. {machine()}

A server and three sites as processes on one machine, mutual TLS on loopback, FedCM. Overhead is a round's time at the
server less the slowest site's own work; median, and from the tenth to the ninetieth per cent. MiB a site: what goes
down and up in a round.

| model | rounds | MiB a site | seconds of overhead a round | target |
|---|---:|---:|---:|---:|
{NEWLINE.join(rows)}

Memory of each kind of process at most, in MiB (the largest of its kind, looked at every half second; no files, and what
several share divided among them):

| process | {" | ".join(memories)} |
|---|{"---:|" * len(memories)}
{NEWLINE.join(table)}
"""


def fedcm(folder: Path, *words: str) -> None:
    subprocess.run([*command(), *words], cwd=folder, check=True)


def command() -> list[str]:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    return [sys.executable, "-m", "fedcm", "federation"]


if __name__ == "__main__":
    main()
