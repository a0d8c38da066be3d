"""This engine against the bare loop: the same forward, backward and SGD steps on batches of the same sizes, models as
they are usually written, in as many one-thread processes, and no federation at all.

    python benchmarks/bare_loop.py                     all models, into benchmarks/RESULTS.md
    python benchmarks/bare_loop.py lenet --rounds 4    one model, printed only

The contestants take turns, so that a noisy machine disturbs them alike; the median of the turns' ratios comes first.
"""

import argparse
import json
import multiprocessing
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
from pages import RESULTS, machine, write_section
from torch import nn
from usual_models import usual_model
from works import WORKS

from fedcm.models import build_model

HERE = Path(__file__).parent
ROUNDS = {"lenet": 20, "cnn": 4, "resnet8": 4, "linear": 100}  # a turn: each takes some seconds
WORKERS = 2
SECTION = """## Against the bare loop

`python benchmarks/bare_loop.py`: the median of 4 turns' ratios, and the median seconds of all rounds;
{workers} one-thread processes each. {machine}

| model | FedAvg / bare loop (target) | bare, s a round | FedAvg, s |
|---|---|---|---|
"""


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


def experiment(name: str, algorithm: str, rounds: int, folder: Path) -> Path:
    """The work as this engine's experiment, written into the folder with its data."""
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
    return path


def command(name: str, algorithm: str, rounds: int, folder: Path) -> list[str]:
    """What runs this engine; the run goes to the folder's runs/."""
    path = experiment(name, algorithm, rounds, folder)
    words = ["run", str(path), "--runs-dir", str(folder / "runs"), "--workers", str(WORKERS), "--json"]
    return [sys.executable, "-m", "fedcm", *words]


def engine(name: str, algorithm: str, rounds: int, folder: Path) -> list[float]:
    words = command(name, algorithm, rounds, folder)
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    lines = (folder / "runs" / json.loads(done.stdout)["name"] / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["seconds"] for line in lines][1:]


def measure(name: str, rounds: int, turns: int) -> dict[str, float]:
    """Medians of the seconds a round, and the median over turns of this engine's time against the bare loop's."""
    times: dict[str, list[float]] = {"bare": [], "fedavg": []}
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(turns):
            turn = {"bare": bare(name, rounds), "fedavg": engine(name, "fedavg", rounds, Path(folder))}
            ratios.append(statistics.median(turn["fedavg"]) / statistics.median(turn["bare"]))
            for contestant, seconds in turn.items():
                times[contestant] += seconds
    medians = {contestant: statistics.median(seconds) for contestant, seconds in times.items()}
    return medians | {"ratio": statistics.median(ratios)}


def row(name: str, figures: dict[str, float]) -> str:
    seconds = " | ".join(f"{figures[contestant]:.3f}" for contestant in ("bare", "fedavg"))
    return f"| {name} | {figures['ratio']:.2f} (≤ {WORKS[name].target:.2f}) | {seconds} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=[], help=", ".join(WORKS))
    parser.add_argument("--rounds", type=int, help="a turn (the first does not count); by the model unless given")
    parser.add_argument("--turns", type=int, default=4)
    asked = parser.parse_args()
    lines = []
    for name in asked.models or WORKS:
        lines.append(row(name, measure(name, asked.rounds or ROUNDS[name], asked.turns)))
        print(lines[-1], flush=True)
    if not asked.models:
        write_section("RESULTS.md", RESULTS, SECTION.format(workers=WORKERS, machine=machine()) + "\n".join(lines))


if __name__ == "__main__":
    main()
