"""What it costs that clients' states lie in a file: the same round of SCAFFOLD with states in memory, in the file while
the system holds it in its cache, in the file read from the disk, and in the file written to the disk every round.

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
from fedcm.system.memory import keep_freed_memory
from fedcm.system.threads import one_thread

HEAD = """## States in a file against states in memory

SCAFFOLD with ResNet-18, two clients a round with 100 images of 32 × 32 each, one pass in batches of 50 (a fifth of the
paper's work a client), {rounds} rounds after the first, one process, every state to a new place in the file. Target: at
most 1.10. States are on the disk before a checkpoint names them: every round at most, every tenth unless told. The time
of the processor, the system's for this process included, does not count waiting: neither for the disk nor for other
work on the machine.
"""


def slowdown(rounds: int = 5) -> str:
    """States in a file, in the system's cache or not, against states in memory."""
    keep_freed_memory()  # as `fedcm run` does
    clients, cohort = 8, np.array([0, 3])
    draw = torch.Generator().manual_seed(0)
    images = torch.randn(clients * 100, 3, 32, 32, generator=draw)
    labels = torch.randint(10, (clients * 100,), generator=draw)
    parts = list(np.arange(clients * 100).reshape(clients, 100))
    problem = Problem(build_model("resnet18", (3, 32, 32), 10, {}, 0), torch.nn.functional.cross_entropy)
    data = ArrayData(Dataset("made", Examples(images, labels), None, 10), parts)
    runner = ClientRunner(Scaffold(), problem, data, LocalWork(50, 1), seed=0)
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name, one_thread():
        files = {kind: Path(name) / kind for kind in ("file", "disk", "saved")}
        stores = {kind: ClientStatesInFile(Scaffold(), problem.initial(), path, 8) for kind, path in files.items()}
        stores["bfloat16"] = ClientStatesInFile(Scaffold(), problem.initial(), Path(name) / "half", 8, torch.bfloat16)
        executors = {"memory": LocalExecutor(runner), **{k: LocalExecutor(runner, s) for k, s in stores.items()}}
        times: dict[str, list[tuple[float, float]]] = {kind: [] for kind in executors}
        server = Scaffold().init_server(problem.initial())
        for index in range(rounds + 1):
            for turn in range(len(executors)):
                kind, executor = list(executors.items())[(turn + index) % len(executors)]
                if kind == "disk":
                    _out_of_cache(files[kind])
                began = time.perf_counter(), time.process_time()
                executor.run_round(Scaffold().broadcast(server), cohort, Round(index, 0.01, 1.0, 2, clients, 2.0))
                if kind == "saved":
                    stores[kind].save()
                times[kind].append((time.perf_counter() - began[0], time.process_time() - began[1]))
    medians = {kind: np.median(seconds[1:], axis=0) for kind, seconds in times.items()}
    lines = [
        "| states | round / in memory | processor's time / in memory | round, s | processor's, s |",
        "|---" * 5 + "|",
    ]
    words = {"memory": "in memory", "file": "in the file", "disk": "in the file, out of the system's cache"}
    words |= {"saved": "in the file, on the disk before the next round", "bfloat16": "in the file, bfloat16"}
    for kind, told in words.items():
        against, seconds = medians[kind] / medians["memory"], medians[kind]
        lines.append(f"| {told} | {against[0]:.3f} | {against[1]:.3f} | {seconds[0]:.2f} | {seconds[1]:.2f} |")
    return "\n".join([HEAD.format(rounds=rounds), *lines])


def _out_of_cache(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
