"""Time client states in a file: the same round of SCAFFOLD with states in memory, in a file in the system's cache, in a
file read from the disk, and in a file written to the disk every round.

    python benchmarks/growth.py slowdown
"""

import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from fedcm import Scaffold
from fedcm.core.algorithm import Round
from fedcm.core.problem import Problem
from fedcm.data.batches import LocalWork
from fedcm.data.dataset import Dataset, Examples
from fedcm.data.federated import ArrayData
from fedcm.executors.client_runner import ClientRunner
from fedcm.executors.client_state_file import ClientStatesInFile
from fedcm.executors.local import LocalExecutor
from fedcm.models import build_model
from fedcm.system.hardware import use_one_thread
from fedcm.system.memory import keep_freed_memory

HEAD = """## States in a file against states in memory

SCAFFOLD with ResNet-18, two clients per round with 100 images of 32 × 32 each, one pass in batches of 50 (a fifth
of the paper's work per client), {rounds} rounds after the first, one process, every state in a new slot of the
file. Target: at most 1.10. States are on the disk before a checkpoint refers to them: every tenth round by default,
at most every round. CPU time includes the system's time for this process, but no waiting for the disk or for other
processes.
"""


def measure_slowdown(rounds: int = 5) -> str:
    """Compare states in a file, cached or not, with states in memory; return the section."""
    keep_freed_memory()  # as `fedcm run` does
    clients, cohort = 8, np.array([0, 3])
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(clients * 100, 3, 32, 32, generator=generator)
    labels = torch.randint(10, (clients * 100,), generator=generator)
    parts = list(np.arange(clients * 100).reshape(clients, 100))
    problem = Problem(build_model("resnet18", (3, 32, 32), 10, {}, 0), torch.nn.functional.cross_entropy)
    data = ArrayData(Dataset("made", Examples(images, labels), None, 10), parts)
    runner = ClientRunner(Scaffold(), problem, data, LocalWork(50, 1), seed=0)
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name, use_one_thread():
        files = {kind: Path(name) / kind for kind in ("file", "disk", "saved")}
        initial = Scaffold().init_client(problem.initial_params)
        stores = {kind: ClientStatesInFile(initial, path, 8) for kind, path in files.items()}
        stores["bfloat16"] = ClientStatesInFile(initial, Path(name) / "half", 8, torch.bfloat16)
        executors = {"memory": LocalExecutor(runner), **{k: LocalExecutor(runner, s) for k, s in stores.items()}}
        times: dict[str, list[tuple[float, float]]] = {kind: [] for kind in executors}
        server = Scaffold().init_server(problem.initial_params)
        for index in range(rounds + 1):
            for turn in range(len(executors)):
                kind, executor = list(executors.items())[(turn + index) % len(executors)]
                if kind == "disk":
                    _drop_from_cache(files[kind])
                began = time.perf_counter(), time.process_time()
                executor.run_round(Scaffold().broadcast(server), cohort, Round(index, 0.01, 1.0, 2, clients, 2.0))
                if kind == "saved":
                    stores[kind].save()
                times[kind].append((time.perf_counter() - began[0], time.process_time() - began[1]))
    medians = {kind: np.median(seconds[1:], axis=0) for kind, seconds in times.items()}
    lines = [
        "| states | round / in memory | CPU time / in memory | round, s | CPU, s |",
        "|---" * 5 + "|",
    ]
    labels = {"memory": "in memory", "file": "in the file", "disk": "in the file, out of the system's cache"}
    labels |= {"saved": "in the file, on the disk before the next round", "bfloat16": "in the file, bfloat16"}
    for kind, label in labels.items():
        ratios, seconds = medians[kind] / medians["memory"], medians[kind]
        lines.append(f"| {label} | {ratios[0]:.3f} | {ratios[1]:.3f} | {seconds[0]:.2f} | {seconds[1]:.2f} |")
    return "\n".join([HEAD.format(rounds=rounds), *lines])


def _drop_from_cache(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
