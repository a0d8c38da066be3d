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
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tomli_w
import torch
import torch.nn.functional as F
from torch import nn

from fedcm.models import build_model

HERE = Path(__file__).parent
WORKERS = 2


@dataclass(frozen=True)
class Work:
    model: str
    shape: tuple[int, ...]
    clients: int
    examples: int  # a client
    cohort: int
    epochs: int
    batch: int
    stack: int = 1
    target: float = 1.0  # time against the bare loop, at most


IMAGES = {"shape": (3, 32, 32), "clients": 500, "examples": 100, "cohort": 10, "epochs": 5, "batch": 50}
WORKS = {
    "lenet": Work("lenet", **IMAGES, target=0.70),
    "cnn": Work("cnn", **IMAGES, target=0.80),
    "resnet8": Work("resnet8", **IMAGES, target=0.80),
    "linear": Work("linear", (784,), 1000, 50, 100, 1, 10, stack=50, target=0.25),
}


class UsualCNN(nn.Module):
    """Two convolutions as they are usually written: ReLU before the pool."""

    def __init__(self, channels: tuple[int, int], hidden: tuple[int, int]) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, channels[0], 5), nn.Conv2d(*channels, 5)
        self.dense = nn.ModuleList([nn.Linear(channels[1] * 25, hidden[0]), nn.Linear(*hidden)])
        self.last = nn.Linear(hidden[1], 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2).flatten(1)
        for layer in self.dense:
            x = F.relu(layer(x))
        return self.last(x)


def usual(name: str, shape: tuple[int, ...]) -> nn.Module:
    match name:
        case "lenet":
            return UsualCNN((6, 16), (120, 84))
        case "cnn":
            return UsualCNN((64, 64), (384, 192))
        case _:
            return build_model(name, shape, 10, {}, 0)


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


def engine(name: str, algorithm: str, rounds: int, folder: Path) -> list[float]:
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
        "client": {"epochs": work.epochs, "batch_size": work.batch, "lr": 0.01},
        "evaluation": {"every": 10**6},
        "checkpoints": {"every": 10**6},
        "engine": {"stack": work.stack},
    }
    path = folder / f"{name}.toml"
    path.write_text(tomli_w.dumps(table))
    words = ["run", str(path), "--runs-dir", str(folder / "runs"), "--workers", str(WORKERS), "--json"]
    done = subprocess.run([sys.executable, "-m", "fedcm", *words], capture_output=True, text=True, check=True)
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
