"""What is left to say of a run when it is over."""

import hashlib
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

Points = Sequence[tuple[int, float]]  # (round from 0, value) of every evaluation, in order

_LAST = 100  # rounds whose evaluations are averaged in a long run
_LONG = 5 * _LAST  # rounds from which on a run is long: the last 100 of fewer would take in too much of the climb


def count_averaged_rounds(rounds: int) -> int:
    """How many of the last rounds the headline figure averages: 100 of 500 or more, otherwise a tenth.

    >>> [count_averaged_rounds(rounds) for rounds in (4000, 500, 499, 400, 30, 12, 1)]
    [100, 100, 50, 40, 3, 2, 1]
    """
    return _LAST if rounds >= _LONG else max(1, math.ceil(rounds / 10))


def summarise(metrics: Sequence[dict[str, Any]], targets: Sequence[float]) -> dict[str, Any]:
    """Accuracy and test loss as last, mean of the last rounds and best (always all three: the best alone flatters),
    rounds to given accuracies, bytes and seconds."""
    evaluated = [line for line in metrics if line.get("test_accuracy") is not None]
    losses = read_points(metrics, "test_loss")
    trained = [line for line in metrics if line["loss"] is not None]
    return {
        "rounds": len(metrics),
        "empty_rounds": sum(line["cohort"] == 0 for line in metrics),
        "accuracy": describe(read_points(metrics, "test_accuracy"), len(metrics)),
        "test_loss": losses[-1][1] if losses else None,
        "test_losses": describe(losses, len(metrics), lower_is_better=True),
        "train_loss": trained[-1]["loss"] if trained else None,
        "rounds_to_accuracy": {str(target): rounds_to(evaluated, target) for target in targets} if evaluated else {},
        "bytes_down": sum(line["bytes_down"] for line in metrics),
        "bytes_up": sum(line["bytes_up"] for line in metrics),
        "seconds": round(math.fsum(line["seconds"] for line in metrics), 3),
    }


def read_points(metrics: Sequence[dict[str, Any]], key: str) -> list[tuple[int, float]]:
    return [(line["round"], line[key]) for line in metrics if line.get(key) is not None]


def describe(points: Points, rounds: int, *, lower_is_better: bool = False) -> dict[str, Any] | None:
    """A curve of so many rounds in a few numbers; None without an evaluation.

    `mean_last` is over `mean_last_rounds` rounds: those of `count_averaged_rounds`, and where none of these was
    evaluated as many as reach back to the last evaluation.
    """
    if not points:
        return None
    window = max(count_averaged_rounds(rounds), rounds - points[-1][0])
    late = [value for round, value in points if round >= rounds - window]
    best = (min if lower_is_better else max)(points, key=lambda point: point[1])
    return {
        "last": points[-1][1],
        "mean_last": math.fsum(late) / len(late),
        "mean_last_rounds": window,
        "mean_last_evaluations": len(late),
        "best": best[1],
        "rounds_to_best": best[0] + 1,
    }


def is_up_to_date(summary: dict[str, Any]) -> bool:
    """Does a summary have today's keys? Without an evaluation there is nothing to bring up to date."""
    accuracy = summary.get("accuracy")
    has_mean = not isinstance(accuracy, dict) or "mean_last" in accuracy
    return has_mean and (summary.get("test_loss") is None or summary.get("test_losses") is not None)


def bring_up_to_date(summary: dict[str, Any], accuracies: Points, losses: Points) -> dict[str, Any]:
    """A summary with today's keys, whenever it was written.

    Older ones have `mean_last_100` whatever the run's length, and nothing of the test loss but the last. Of a short run
    the mean is taken anew from the evaluations; without these it stays what it was, and says so by its rounds.
    """
    rounds = summary.get("rounds")
    rounds = rounds if isinstance(rounds, int) else 0
    changed: dict[str, Any] = {}
    accuracy = summary.get("accuracy")
    if isinstance(accuracy, dict) and "mean_last_100" in accuracy and "mean_last" not in accuracy:
        as_it_was = {
            "mean_last": accuracy["mean_last_100"],
            "mean_last_rounds": _LAST,
            "mean_last_evaluations": accuracy.get("evaluations_in_last_100"),
        }
        fresh = None if rounds >= _LONG else describe(accuracies, rounds)
        kept = {key: value for key, value in accuracy.items() if key in ("last", "best", "rounds_to_best")}
        changed["accuracy"] = (fresh or as_it_was) | kept
    if summary.get("test_losses") is None and (found := describe(losses, rounds, lower_is_better=True)):
        changed["test_losses"] = found
    return summary | changed


def rounds_to(evaluated: Sequence[dict[str, Any]], target: float) -> int | None:
    """How many rounds it took until an evaluation first reached the target."""
    return next((line["round"] + 1 for line in evaluated if line["test_accuracy"] >= target), None)


def params_sha256(params: "Tensor") -> str:
    import torch  # here, so that a report of digests does without it

    return hashlib.sha256(params.detach().cpu().contiguous().view(torch.uint8).numpy().data).hexdigest()
