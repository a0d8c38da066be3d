"""The summary of a run: scores, rounds to given accuracies, bytes and seconds."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from fedcm.runs.folder import RunFolder

Traits = Mapping[str, Mapping[str, bool]]  # by metric: "higher_is_better" and "is_share"
Points = Sequence[tuple[int, float]]  # (round from 0, value) of every evaluation, in order

DEFAULT_TRAITS: Traits = {"accuracy": {"higher_is_better": True, "is_share": True}}
_LAST = 100  # rounds whose evaluations are averaged in a long run
_LONG_RUN = 5 * _LAST  # rounds of a long run; the last 100 of fewer rounds would include too much of the climb


def count_averaged_rounds(rounds: int) -> int:
    """Return how many of the last rounds the headline score averages: 100 of 500 or more, otherwise a tenth.

    >>> [count_averaged_rounds(rounds) for rounds in (4000, 500, 499, 400, 30, 12, 1)]
    [100, 100, 50, 40, 3, 2, 1]
    """
    return _LAST if rounds >= _LONG_RUN else max(1, math.ceil(rounds / 10))


def summarise(
    metrics: Sequence[dict[str, Any]], targets: Sequence[float], traits: Traits = DEFAULT_TRAITS
) -> dict[str, Any]:
    """Summarise the metrics of a run.

    Every metric has last, mean of the last rounds and best, because the best alone flatters. Scores on validation data
    are in `validation`, which is absent without such data.

    Args:
        metrics: One dict per round.
        targets: Values of the first metric, if this is a share; the summary has the number of rounds to each.
        traits: Direction and range of each metric, the headline first.
    """
    headline = next(iter(traits))
    losses = read_points(metrics, "test_loss")
    validation = _summarise_set(metrics, "validation", traits)
    if found := summarise_points(read_points(metrics, "validation_loss"), len(metrics), lower_is_better=True):
        validation = {"loss": found | {"higher_is_better": False, "is_share": False}} | validation
    evaluated = read_points(metrics, f"test_{headline}") if traits[headline]["is_share"] else []
    trained = [line for line in metrics if line["loss"] is not None]
    return {
        "rounds": len(metrics),
        "empty_rounds": sum(line["cohort"] == 0 for line in metrics),
        "accuracy": summarise_points(read_points(metrics, "test_accuracy"), len(metrics)),
        "test_loss": losses[-1][1] if losses else None,
        "test_losses": summarise_points(losses, len(metrics), lower_is_better=True),
        "train_loss": trained[-1]["loss"] if trained else None,
        "rounds_to_accuracy": {str(target): count_rounds_to(evaluated, target) for target in targets}
        if evaluated
        else {},
        "metrics": _summarise_set(metrics, "test", traits),
        **({"validation": validation} if validation else {}),
        **{which: found for which in ("clients", "personal") if (found := _summarise_clients(metrics, which, traits))},
        "bytes_down": sum(line["bytes_down"] for line in metrics),
        "bytes_up": sum(line["bytes_up"] for line in metrics),
        "seconds": round(math.fsum(line["seconds"] for line in metrics), 3),
        **_sum_conditions(metrics),
    }


def _sum_conditions(metrics: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the reports that missed the deadline and the simulated time; empty without simulated stragglers."""
    timed = [line for line in metrics if line.get("simulated_seconds") is not None]
    if not timed:
        return {}
    return {
        "missed_reports": sum(line["missed"] for line in timed),
        "simulated_seconds": round(math.fsum(line["simulated_seconds"] for line in timed), 3),
    }


def _summarise_set(metrics: Sequence[dict[str, Any]], which: str, traits: Traits) -> dict[str, Any]:
    """Describe the curve of each metric on one set, with its traits; metrics without a value are left out."""
    table: dict[str, Any] = {}
    for name, own in traits.items():
        points = read_points(metrics, f"{which}_{name}")
        if found := summarise_points(points, len(metrics), lower_is_better=not own["higher_is_better"]):
            table[name] = found | dict(own)
    return table


def _summarise_clients(metrics: Sequence[dict[str, Any]], which: str, traits: Traits) -> dict[str, Any] | None:
    """Describe the results over clients: the metric, its distribution in the last evaluation, the curve of its mean."""
    for line in reversed(metrics):
        values = {key.removeprefix(f"{which}_"): line[key] for key in line if key.startswith(f"{which}_")}
        if values:
            name = next(iter(values)).rpartition("_")[0]
            own = traits.get(name, {"higher_is_better": False, "is_share": False})  # the loss has no traits
            points = read_points(metrics, f"{which}_{name}_mean")
            curve = summarise_points(points, len(metrics), lower_is_better=not own["higher_is_better"])
            distribution = {key.rpartition("_")[2]: value for key, value in values.items()}
            return {"metric": name, **distribution, **(curve or {}), **own}
    return None


def read_points(metrics: Sequence[dict[str, Any]], key: str) -> list[tuple[int, float]]:
    """Return (round, value) of every round that has this metric."""
    return [(line["round"], line[key]) for line in metrics if line.get(key) is not None]


def summarise_points(points: Points, rounds: int, *, lower_is_better: bool = False) -> dict[str, Any] | None:
    """Describe a curve in a few numbers; None without an evaluation.

    `mean_last` averages the last `mean_last_rounds` rounds: those of `count_averaged_rounds`, or more if none of these
    was evaluated, back to the last evaluation.
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


def read_traits(provenance: Mapping[str, Any]) -> Traits:
    """Return direction and range of a run's metrics, from its provenance.json."""
    traits = provenance.get("metrics")
    return traits if isinstance(traits, dict) and traits else DEFAULT_TRAITS


def read_current_summary(folder: "RunFolder", metrics: Sequence[dict[str, Any]] | None = None) -> dict[str, Any] | None:
    """Read the summary of a run and convert it to the keys of this version; None if there is none.

    Args:
        folder: The run's folder.
        metrics: The metrics of the run, if they were read already.
    """
    summary = folder.read_summary()
    if summary is None or is_up_to_date(summary):
        return summary
    lines = folder.read_metrics() if metrics is None else metrics
    return bring_up_to_date(summary, read_points(lines, "test_accuracy"), read_points(lines, "test_loss"))


def is_up_to_date(summary: dict[str, Any]) -> bool:
    """Return whether a summary has the keys of this version."""
    accuracy = summary.get("accuracy")
    has_mean = not isinstance(accuracy, dict) or "mean_last" in accuracy
    return has_mean and (summary.get("test_loss") is None or summary.get("test_losses") is not None)


def bring_up_to_date(summary: dict[str, Any], accuracies: Points, losses: Points) -> dict[str, Any]:
    """Return a summary with the keys of this version.

    Older summaries have `mean_last_100` for runs of any length, and only the last test loss. For short runs the mean is
    computed again from the evaluations; without these it keeps its value and its number of rounds.
    """
    rounds = summary.get("rounds")
    rounds = rounds if isinstance(rounds, int) else 0
    changed: dict[str, Any] = {}
    accuracy = summary.get("accuracy")
    if isinstance(accuracy, dict) and "mean_last_100" in accuracy and "mean_last" not in accuracy:
        old = {
            "mean_last": accuracy["mean_last_100"],
            "mean_last_rounds": _LAST,
            "mean_last_evaluations": accuracy.get("evaluations_in_last_100"),
        }
        fresh = None if rounds >= _LONG_RUN else summarise_points(accuracies, rounds)
        kept = {key: value for key, value in accuracy.items() if key in ("last", "best", "rounds_to_best")}
        changed["accuracy"] = (fresh or old) | kept
    if summary.get("test_losses") is None and (found := summarise_points(losses, rounds, lower_is_better=True)):
        changed["test_losses"] = found
    return summary | changed


def count_rounds_to(evaluated: Points, target: float) -> int | None:
    """Return the number of rounds until an evaluation first reached the target; None if none did."""
    return next((round + 1 for round, value in evaluated if value >= target), None)


def hash_params(params: "Tensor") -> str:
    """Return the sha256 of the parameters' bytes."""
    import torch  # here, so that a report about digests does not load torch

    return hashlib.sha256(params.detach().cpu().contiguous().view(torch.uint8).numpy().data).hexdigest()
