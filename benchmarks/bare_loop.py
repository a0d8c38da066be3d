"""Time this engine against a bare loop: the same forward, backward and SGD steps on batches of the same sizes, with
models as usually written, in the same number of one-thread processes, without any federation.

    python benchmarks/bare_loop.py                     all models, written to benchmarks/RESULTS.md
    python benchmarks/bare_loop.py lenet --rounds 4    one model, only printed

The contestants take turns, so that noise affects both equally; the median of the turns' ratios comes first.
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
from pages import RESULTS, describe_machine, write_section
from plain_models import build_plain_model
from torch import nn
from workloads import WORKLOADS

from fedcm.models import build_model

HERE = Path(__file__).parent
ROUNDS = {"lenet": 20, "cnn": 4, "resnet8": 4, "linear": 100}  # per turn, which takes some seconds
WORKERS = 2
SECTION = """## Against the bare loop

`python benchmarks/bare_loop.py`: the median of 4 turns' ratios, and the median seconds of all rounds;
{workers} one-thread processes each. {machine}

| model | FedAvg / bare loop (target) | bare, s per round | FedAvg, s |
|---|---|---|---|
"""


def build(name: str, shape: tuple[int, ...]) -> nn.Module:
    return build_plain_model(name) if name in ("lenet", "cnn") else build_model(name, shape, 10, {}, 0)


def train_share(name: str, rank: int, rounds: int, results: "multiprocessing.Queue[list[float]]", gate: object) -> None:
    """Train one process's share of the clients in every round; all processes wait for each other after a round."""
    torch.set_num_threads(1)
    work = WORKLOADS[name]
    generator = torch.Generator().manual_seed(rank)
    data = [
        (
            torch.randn(work.examples, *work.shape, generator=generator),
            torch.randint(10, (work.examples,), generator=generator),
        )
        for _ in range(work.cohort_size // WORKERS)
    ]
    model = build(name, work.shape)
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


def time_bare_loop(name: str, rounds: int) -> list[float]:
    """Return the seconds of each round of the bare loop, without the first."""
    context = multiprocessing.get_context("spawn")
    results, gate = context.Queue(), context.Barrier(WORKERS)
    workers = [context.Process(target=train_share, args=(name, rank, rounds, results, gate)) for rank in range(WORKERS)]
    for process in workers:
        process.start()
    times = [results.get() for _ in workers]
    for process in workers:
        process.join()
    return [max(pair) for pair in zip(*times, strict=True)][1:]


def write_experiment(name: str, algorithm: str, rounds: int, folder: Path) -> Path:
    """Write the workload as an experiment with its data into the folder; return its path."""
    work = WORKLOADS[name]
    data = folder / f"{work.shape}.npz"
    if not data.exists():
        generator = np.random.default_rng(0)
        x = generator.normal(size=(work.clients * work.examples, *work.shape)).astype(np.float32)
        np.savez(data, x=x, y=generator.integers(0, 10, len(x)))
    table = {
        "name": name,
        "rounds": rounds,
        "data": {"source": str(data)},
        "split": {"kind": "iid", "clients": work.clients},
        "participation": {"kind": "fixed", "clients": work.cohort_size},
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


def make_command(name: str, algorithm: str, rounds: int, folder: Path) -> list[str]:
    """Return the command that runs this engine; the run is stored in the folder's runs/."""
    path = write_experiment(name, algorithm, rounds, folder)
    words = ["run", str(path), "--runs-dir", str(folder / "runs"), "--workers", str(WORKERS), "--json"]
    return [sys.executable, "-m", "fedcm", *words]


def time_engine(name: str, algorithm: str, rounds: int, folder: Path) -> list[float]:
    """Return the seconds of each round of this engine, without the first."""
    words = make_command(name, algorithm, rounds, folder)
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    lines = (folder / "runs" / json.loads(done.stdout)["name"] / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["seconds"] for line in lines][1:]


def measure(name: str, rounds: int, turns: int) -> dict[str, float]:
    """Return the median seconds per round, and the median over turns of the engine's time over the bare loop's."""
    times: dict[str, list[float]] = {"bare": [], "fedavg": []}
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(turns):
            turn = {"bare": time_bare_loop(name, rounds), "fedavg": time_engine(name, "fedavg", rounds, Path(folder))}
            ratios.append(statistics.median(turn["fedavg"]) / statistics.median(turn["bare"]))
            for contestant, seconds in turn.items():
                times[contestant] += seconds
    medians = {contestant: statistics.median(seconds) for contestant, seconds in times.items()}
    return medians | {"ratio": statistics.median(ratios)}


def format_row(name: str, figures: dict[str, float]) -> str:
    seconds = " | ".join(f"{figures[contestant]:.3f}" for contestant in ("bare", "fedavg"))
    return f"| {name} | {figures['ratio']:.2f} (≤ {WORKLOADS[name].target:.2f}) | {seconds} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=[], help=", ".join(WORKLOADS))
    parser.add_argument(
        "--rounds", type=int, help="rounds per turn, the first is not counted (default: depends on the model)"
    )
    parser.add_argument("--turns", type=int, default=4)
    options = parser.parse_args()
    lines = []
    for name in options.models or WORKLOADS:
        lines.append(format_row(name, measure(name, options.rounds or ROUNDS[name], options.turns)))
        print(lines[-1], flush=True)
    if not options.models:
        write_section(
            "RESULTS.md", RESULTS, SECTION.format(workers=WORKERS, machine=describe_machine()) + "\n".join(lines)
        )


if __name__ == "__main__":
    main()
