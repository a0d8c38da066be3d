"""What is left to say of a run when it is over."""

import hashlib
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

LAST = 100  # rounds whose evaluations are averaged


def summarise(metrics: Sequence[dict[str, Any]], targets: Sequence[float]) -> dict[str, Any]:
    """Accuracy as last, mean of the last 100 rounds and best (always all three: the best alone flatters), rounds and
    uplink bytes to given accuracies, bytes and seconds."""
    evaluated = [line for line in metrics if line.get("test_accuracy") is not None]
    tested = [line for line in metrics if "test_loss" in line]
    trained = [line for line in metrics if line["loss"] is not None]
    return {
        "rounds": len(metrics),
        "empty_rounds": sum(line["cohort"] == 0 for line in metrics),
        "accuracy": _accuracy(evaluated, len(metrics)) if evaluated else None,
        "test_loss": tested[-1]["test_loss"] if tested else None,
        "train_loss": trained[-1]["loss"] if trained else None,
        "rounds_to_accuracy": {str(target): rounds_to(evaluated, target) for target in targets} if evaluated else {},
        "bytes_down": sum(line["bytes_down"] for line in metrics),
        "bytes_up": sum(line["bytes_up"] for line in metrics),
        "seconds": round(math.fsum(line["seconds"] for line in metrics), 3),
    }


def rounds_to(evaluated: Sequence[dict[str, Any]], target: float) -> int | None:
    """How many rounds it took until an evaluation first reached the target."""
    return next((line["round"] + 1 for line in evaluated if line["test_accuracy"] >= target), None)


def params_sha256(params: Tensor) -> str:
    return hashlib.sha256(params.detach().cpu().contiguous().view(torch.uint8).numpy().data).hexdigest()


def _accuracy(evaluated: Sequence[dict[str, Any]], rounds: int) -> dict[str, Any]:
    late = [line["test_accuracy"] for line in evaluated if line["round"] >= rounds - LAST]
    best = max(evaluated, key=lambda line: line["test_accuracy"])
    return {
        "last": evaluated[-1]["test_accuracy"],
        "mean_last_100": math.fsum(late) / len(late),
        "evaluations_in_last_100": len(late),
        "best": best["test_accuracy"],
        "rounds_to_best": best["round"] + 1,
    }
