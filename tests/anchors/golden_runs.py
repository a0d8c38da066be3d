"""Fifteen small runs with recorded results: any change of a random stream or of the arithmetic is visible.

Each run uses the command line. `bits` is the sha256 of its parameters in float32, which is the same on one kind of CPU
and one version of torch. `numbers` are metrics of the same run in float64; they agree to 1e-6 on every machine.
"""

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from fedcm.system.hardware import describe_cpu

RECORD = Path(__file__).with_name("golden.json")
TOLERANCE = 1e-6  # relative, of numbers in float64
NUMBERS = ("loss", "update_norm", "momentum_norm", "control_norm", "correction_norm", "second_moment_norm", "test_loss")


@dataclass(frozen=True)
class GoldenRun:
    """One run; `tables` replace parts of the small experiment."""

    tables: dict[str, Any]
    workers: int = 1
    stop_after: int | None = None  # stop after this many rounds, then resume
    portable: bool = True  # whether it can run in float64
    source: str = "made"  # or "images"


IMAGES = {
    "split": {"kind": "shards", "clients": 20, "per_client": 2},
    "participation": {"kind": "fixed", "clients": 3},
    "client": {"steps": 3, "batch_size": 10, "lr": 0.05, "weight_decay": 0.01, "weight_decay_at": "step", "clip": 1.0},
    "rounds": 4,
}

RUNS: dict[str, GoldenRun] = {
    "fedavg": GoldenRun({"algorithm": {"name": "fedavg"}}),
    "fedcm": GoldenRun({"algorithm": {"name": "fedcm", "alpha": 0.1}}),
    "fedadam": GoldenRun({"algorithm": {"name": "fedadam"}, "server": {"lr": 0.1}}),
    "scaffold-I": GoldenRun({"algorithm": {"name": "scaffold", "option": "I"}}),
    "scaffold-II": GoldenRun({"algorithm": {"name": "scaffold", "option": "II"}}),
    "feddyn": GoldenRun({"algorithm": {"name": "feddyn", "alpha": 0.1}}),
    "scaffold, resumed": GoldenRun({"algorithm": {"name": "scaffold"}}, stop_after=5),
    "scaffold, rounded states": GoldenRun({"algorithm": {"name": "scaffold"}, "engine": {"client_states": "bfloat16"}}),
    "fedcm, stacks": GoldenRun({"engine": {"stack": 4}}),
    "fedcm, two workers": GoldenRun({}, workers=2),
    "fedcm, weights by examples": GoldenRun(
        {
            "server": {"weights": "examples", "lr": 0.7},
            "split": {"kind": "dirichlet-by-label", "clients": 12, "concentration": 0.3},
        }
    ),
    "fedcm, bf16": GoldenRun({"engine": {"precision": "bf16"}}, portable=False),
    "cnn, clipped, decay in the step": GoldenRun(IMAGES | {"model": {"name": "lenet"}}, source="images"),
    "resnet8": GoldenRun(IMAGES | {"model": {"name": "resnet8"}}, source="images"),
    "everyone, iid, linear": GoldenRun(
        {
            "split": {"kind": "iid", "clients": 6},
            "participation": {"kind": "everyone"},
            "model": {"name": "linear"},
            "client": {"epochs": 1, "batch_size": 50, "lr": 0.2},
        }
    ),
}


@dataclass
class Result:
    """The recorded results of a run."""

    bits: str | None = None
    numbers: dict[str, float] = field(default_factory=dict)


def describe_machine() -> str:
    """Describe everything that the last bits depend on."""
    cpu = describe_cpu()
    cache = next(
        (line.split(":")[1].strip() for line in _read_cpuinfo() if line.startswith("cache size")), "unknown cache"
    )
    return f"{cpu['model']}, {cache}, {cpu['capability']}, torch {torch.__version__}"


def _read_cpuinfo() -> list[str]:
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def read_bits(folder: Path) -> str:
    """Return a sha256 of the parameters and of the client states, if there are any."""
    summary = json.loads((folder / "summary.json").read_text())
    states = folder / "clients" / "states.bin"
    states_sha256 = hashlib.sha256(states.read_bytes()).hexdigest() if states.exists() else ""
    return hashlib.sha256(f"{summary['params_sha256']} {states_sha256}".encode()).hexdigest()[:32]


def read_numbers(folder: Path) -> dict[str, float]:
    """Read the metrics of the last round with a nonempty cohort, and all cohorts as one number."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    last = [line for line in lines if line["cohort"]][-1] | {"test_loss": lines[-1]["test_loss"]}
    cohorts = sum((k + 1) * client for k, line in enumerate(lines) for client in line["clients"])
    return {name: last[name] for name in NUMBERS if name in last} | {"cohorts": float(cohorts)}


def read_record() -> dict[str, dict[str, Any]]:
    """Read the record: name -> {"bits": {machine kind: hash}, "numbers": {metric: value}}."""
    return json.loads(RECORD.read_text()) if RECORD.exists() else {}
