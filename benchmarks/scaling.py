"""Scaling with workers: 1 → 2 measured, more projected by the formula below.

    python benchmarks/growth.py scaling

A round distributes S clients of t seconds each over n workers, then adds up the reports' integers:

    T(n) = ⌈S/n⌉·t + 2·(n − 1)/n·B/b + 2·(n − 1)·λ        efficiency = S·t / (n·T(n))

B is 8 bytes per reported number (int64 fixed point), b the network's bandwidth and λ the latency of a message. The sum
uses a ring (each worker sends 2·(n − 1) messages of B/n). Nothing overlaps: the sum waits for the last worker.
"""

import json
import math
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

from fedcm.core.problem import Problem
from fedcm.data.dataset import Examples
from fedcm.models import MODELS, build_model
from fedcm.system.hardware import use_one_thread

STEPS, BATCH = 10, 50  # 100 examples, 5 passes in batches of 50
LATENCY = 50e-6  # seconds per message
BANDWIDTHS = (1, 10, 100)  # Gbit/s
WORKERS = (8, 64, 512)
COHORTS = (100, 1000)

HEAD = """## Workers

Measured: FedCM with LeNet, 10 clients of 100 examples, 5 passes in batches of 50, one-thread workers of one machine:
{one:.3f} s per round on one, {two:.3f} s on two, an efficiency of {share:.0%}.

Projected, not measured: T(n) = ⌈S/n⌉·t + 2·(n − 1)/n·B/b + 2·(n − 1)·λ, and an efficiency of S·t / (n·T(n)). t is
{steps} steps on {batch} examples, each step measured here on one core. B is the size of the sums: 8 bytes per
parameter with FedAvg, FedCM, FedAdam and FedDyn, and twice that with SCAFFOLD. b is in the table's head;
λ = {latency:.0f} µs; a client is not divided between workers.
"""
EXAMPLE = """For example LeNet, S = {clients}, n = {workers}, 10 Gbit/s:
{most}·{t:.4f} s + 2·63/64·{sent:.3f} MB / 1250 MB/s + 126·50 µs = {seconds:.3f} s,
against {ideal:.3f} s if clients could be divided and sums were free.
"""


def compute_round_time(clients: int, workers: int, seconds: float, sent: float, bandwidth: float) -> float:
    ring = 2 * (workers - 1) / workers * sent / (bandwidth * 1e9 / 8) + 2 * (workers - 1) * LATENCY
    return math.ceil(clients / workers) * seconds + ring


def compute_efficiency(clients: int, workers: int, seconds: float, sent: float, bandwidth: float) -> float:
    """Return the efficiency S·t / (n·T(n)).

    >>> compute_efficiency(100, 1, 1.0, 1e6, 1.0)
    1.0
    >>> round(compute_efficiency(100, 64, 1.0, 0.0, 1.0), 2)  # 36 of the 64 workers have two clients, the others one
    0.78
    """
    return clients * seconds / (workers * compute_round_time(clients, workers, seconds, sent, bandwidth))


def measure_step(name: str) -> tuple[float, int]:
    """Return the seconds of a minibatch gradient on one core, and the number of parameters."""
    shape = (784,) if name in ("linear", "mlp") else (3, 32, 32)
    problem = Problem(build_model(name, shape, 10, {}, 0), F.cross_entropy)
    batch = Examples(torch.randn(BATCH, *shape), torch.arange(BATCH) % 10)
    if batch.features.dim() == 4:
        batch = Examples(batch.features.contiguous(memory_format=torch.channels_last), batch.labels)
    times, began = [], time.perf_counter()
    with use_one_thread():
        while len(times) < 4 or (time.perf_counter() - began < 3 and len(times) < 50):
            start = time.perf_counter()
            problem.gradient(batch)(problem.initial_params)
            times.append(time.perf_counter() - start)
    return statistics.median(times[1:]), problem.size


def measure_workers(turns: int = 3) -> dict[int, float]:
    """Return the median seconds of a round of FedCM with LeNet on one and on two workers, which take turns."""
    times: dict[int, list[float]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory() as name:
        folder, generator = Path(name), np.random.default_rng(0)
        x = generator.normal(size=(2000, 3, 32, 32)).astype(np.float32)
        np.savez(folder / "made.npz", x=x, y=generator.integers(0, 10, 2000))
        table = {
            **{"name": "scaling", "rounds": 6, "data": {"source": str(folder / "made.npz")}},
            **{"split": {"kind": "iid", "clients": 20}, "participation": {"kind": "fixed", "clients": 10}},
            **{"model": {"name": "lenet"}, "algorithm": {"name": "fedcm"}},
            **{"client": {"epochs": 5, "batch_size": BATCH, "lr": 0.01}, "evaluation": {"every": 10**6}},
        }
        (folder / "scaling.toml").write_text(tomli_w.dumps(table))
        for turn in range(turns):
            for workers in (1, 2) if turn % 2 else (2, 1):
                words = ["run", str(folder / "scaling.toml"), "--runs-dir", name, "--workers", str(workers), "--json"]
                done = subprocess.run(
                    [sys.executable, "-m", "fedcm", *words], capture_output=True, text=True, check=True
                )
                lines = (folder / json.loads(done.stdout)["name"] / "metrics.jsonl").read_text().splitlines()
                times[workers] += [json.loads(line)["seconds"] for line in lines][1:]
    return {workers: statistics.median(seconds) for workers, seconds in times.items()}


def measure_scaling() -> str:
    """Measure and project; return the section."""
    measured = measure_workers()
    share = measured[1] / (2 * measured[2])
    columns = [(bandwidth, workers) for bandwidth in BANDWIDTHS for workers in WORKERS]
    head = " | ".join(f"{bandwidth} Gbit/s × {workers}" for bandwidth, workers in columns)
    lines = [f"| model | t, s | B, MB | S | {head} |", "|---" * (4 + len(columns)) + "|"]
    steps = {name: measure_step(name) for name in MODELS}
    for clients in COHORTS:
        for name, (step, size) in steps.items():
            numbers = (STEPS * step, 8.0 * size)
            cells = [
                f"{compute_efficiency(clients, workers, *numbers, bandwidth):.0%}" for bandwidth, workers in columns
            ]
            lines.append(f"| {name} | {numbers[0]:.3f} | {numbers[1] / 1e6:.1f} | {clients} | {' | '.join(cells)} |")
    step, size = steps["lenet"]
    t, sent, clients, workers = STEPS * step, 8.0 * size, COHORTS[1], WORKERS[1]
    example = {
        "t": t,
        "sent": sent / 1e6,
        "clients": clients,
        "workers": workers,
        "most": math.ceil(clients / workers),
        "seconds": compute_round_time(clients, workers, t, sent, 10),
        "ideal": clients * t / workers,
    }
    head_text = HEAD.format(
        one=measured[1], two=measured[2], share=share, steps=STEPS, batch=BATCH, latency=LATENCY * 1e6
    )
    return "\n".join([head_text, EXAMPLE.format(**example), *lines])
