"""This engine against the bare loop: the same forward, backward and SGD steps on batches of the same sizes, models as
they are usually written, in as many one-thread processes, and no federation at all. Also FedCM against FedAvg.

    python benchmarks/bare_loop.py                     all models, writes benchmarks/RESULTS.md
    python benchmarks/bare_loop.py lenet --rounds 4    one model, printed only

The contestants take turns, so that a noisy machine disturbs them alike; ratios of medians come first.
"""

import argparse
import json
import multiprocessing
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import tomli_w
import torch
import torch.nn.functional as F
from torch import nn
from usual_models import usual_model
from works import WORKS

from fedcm.models import build_model

HERE = Path(__file__).parent
WORKERS = 2


def usual(name: str, shape: tuple[int, ...]) -> nn.Module:
    return usual_model(name) if name in ("lenet", "cnn") else build_model(name, shape, 10, {}, 0)


def bare_share(name: str, rank: int, rounds: int, results: "multiprocessing.Queue[list[float]]", gate: object) -> None:
    """One process's half of the clients, round after round; all wait for each other at the end of a round."""
    torch.set_num_threads(1)
    work = WORKS[name]
    draw = torch.Generator().manual_seed(rank)
    data = [
        (torch.randn(work.examples, *work.shape, generator=draw), torch.randint(10, (work.examples,), generator=draw))
        for _ in range(work.cohort // WORKERS)
    ]
    model = usual(name, work.shape)
    start = {key: value.clone() for key, value in model.state_dict().items()}
    times = []
    for _ in range(rounds):
        gate.wait()  # pyright: ignore[reportAttributeAccessIssue]
        began = time.perf_counter()
        for x, y in data:
            model.load_state_dict(start)
            optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
            for _ in range(work.epochs):
                for index in torch.randperm(work.examples).split(work.batch):
                    optimiser.zero_grad()
                    F.cross_entropy(model(x[index]), y[index]).backward()
                    optimiser.step()
        gate.wait()  # pyright: ignore[reportAttributeAccessIssue]
        times.append(time.perf_counter() - began)
    results.put(times)


def bare(name: str, rounds: int) -> list[float]:
    context = multiprocessing.get_context("spawn")
    results, gate = context.Queue(), context.Barrier(WORKERS)
    crew = [context.Process(target=bare_share, args=(name, rank, rounds, results, gate)) for rank in range(WORKERS)]
    for process in crew:
        process.start()
    times = [results.get() for _ in crew]
    for process in crew:
        process.join()
    return [max(pair) for pair in zip(*times, strict=True)][1:]


def command(name: str, algorithm: str, rounds: int, folder: Path) -> list[str]:
    """What runs this engine, its data and experiment written into the folder; the run goes to the folder's runs/."""
    work = WORKS[name]
    data = folder / f"{work.shape}.npz"
    if not data.exists():
        draw = np.random.default_rng(0)
        x = draw.normal(size=(work.clients * work.examples, *work.shape)).astype(np.float32)
        np.savez(data, x=x, y=draw.integers(0, 10, len(x)))
    table = {
        "name": name,
        "rounds": rounds,
        "data": {"source": str(data)},
        "split": {"kind": "iid", "clients": work.clients},
        "participation": {"kind": "fixed", "clients": work.cohort},
        "model": {"name": work.model},
        "algorithm": {"name": algorithm},
        "client": {"epochs": work.epochs, "batch_size": work.batch, "lr": work.lr},
        "evaluation": {"every": 10**6},
        "checkpoints": {"every": 10**6},
        "engine": {"stack": work.stack},
    }
    path = folder / f"{name}.toml"
    path.write_text(tomli_w.dumps(table))
    words = ["run", str(path), "--runs-dir", str(folder / "runs"), "--workers", str(WORKERS), "--json"]
    return [sys.executable, "-m", "fedcm", *words]


def engine(name: str, algorithm: str, rounds: int, folder: Path) -> list[float]:
    words = command(name, algorithm, rounds, folder)
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    lines = (folder / "runs" / json.loads(done.stdout)["name"] / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["seconds"] for line in lines][1:]


def measure(name: str, rounds: int, turns: int) -> dict[str, float]:
    times: dict[str, list[float]] = {"bare": [], "fedavg": [], "fedcm": []}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(turns):
            times["bare"] += bare(name, rounds)
            for algorithm in ("fedavg", "fedcm") if turn % 2 else ("fedcm", "fedavg"):
                times[algorithm] += engine(name, algorithm, rounds, Path(folder))
    return {contestant: statistics.median(seconds) for contestant, seconds in times.items()}


def row(name: str, medians: dict[str, float]) -> str:
    against, overhead = medians["fedavg"] / medians["bare"], medians["fedcm"] / medians["fedavg"]
    seconds = " | ".join(f"{medians[contestant]:.3f}" for contestant in ("bare", "fedavg", "fedcm"))
    return f"| {name} | {against:.2f} (≤ {WORKS[name].target:.2f}) | {overhead:.3f} | {seconds} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=[], help=", ".join(WORKS))
    parser.add_argument("--rounds", type=int, default=5, help="a turn; the first of each turn does not count")
    parser.add_argument("--turns", type=int, default=3)
    asked = parser.parse_args()
    lines = [
        "| model | FedAvg here / bare loop (target) | FedCM / FedAvg here | bare, s a round | FedAvg, s | FedCM, s |",
        "|---|---|---|---|---|---|",
    ]
    for name in asked.models or WORKS:
        lines.append(row(name, measure(name, asked.rounds, asked.turns)))
        print(lines[-1], flush=True)
    if not asked.models:
        head = (
            "# Measured\n\nWritten by `make bench`: ratios of medians, the contestants taking turns in one run, "
            f"{WORKERS} one-thread processes each.\nMachine: {platform.processor() or platform.machine()}, "
            f"{multiprocessing.cpu_count()} cores, torch {torch.__version__}, Python {platform.python_version()}.\n\n"
            "## Against the bare loop, and FedCM's overhead\n\n"
        )
        (HERE / "RESULTS.md").write_text(head + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
