"""Make digests of runs with the accuracies that a test needs, without running anything."""

from typing import Any

from fedcm.reports.digest import Curve, Digest, LabelMix, ParticipationCounts
from fedcm.reports.figures.method_groups import METHOD_GROUPS
from fedcm.runs.summary import count_averaged_rounds

SETTINGS = {"I": (100, 0.1), "II": (500, 0.02)}


def make_test_digest(algorithm: str = "fedcm", accuracy: float | None = 0.8, seed: int = 1, **changes: Any) -> Digest:
    """Make a digest; `accuracy` is the mean of the last rounds, the last is one point higher, the best two."""
    setting, split = changes.pop("setting", "I"), changes.pop("split", "dirichlet")
    curve, labels = changes.pop("curve", None), changes.pop("labels", {"setting": setting, "split": split})
    rounds, state = changes.pop("rounds", 40), changes.pop("state", "finished")
    options = {"fedcm": {"alpha": 0.1}, "feddyn": {"alpha": 0.01}}.get(algorithm, {}) | changes.pop("options", {})
    clients, probability = SETTINGS[setting]
    published = changes.pop("published", None)
    experiment = {
        "name": changes.pop("experiment", "made"),
        "rounds": rounds,
        "seed": seed,
        "data": {"source": changes.pop("source", "digits")},
        "split": {"kind": split, "clients": clients} | ({"concentration": 0.6} if split == "dirichlet" else {}),
        "participation": {"kind": "independent", "probability": probability},
        "model": {"name": "mlp", "hidden": [64]},
        "algorithm": {"name": algorithm, **options},
        "client": {"epochs": 5, "lr": 0.1},
        "evaluation": {"every": 1, "targets": [0.5, 0.7]},
        "cell": {"labels": labels} | ({} if published is None else {"published": published}),
    }
    return Digest(
        name=changes.pop("name", f"made-{algorithm}-seed{seed}"),
        state=state,
        experiment=experiment,
        summary={
            "rounds": rounds,
            "accuracy": accuracy
            and {
                "mean_last": accuracy,
                "mean_last_rounds": count_averaged_rounds(rounds),
                "last": round(accuracy + 0.01, 6),
                "best": round(accuracy + 0.02, 6),
            },
            "bytes_down": 2000 * rounds,
            "bytes_up": 1000 * rounds,
            "seconds": 0.5 * rounds,
        },
        versions={"fedcm": "0.1.0", "torch": "2.13.0"},
        started=changes.pop("started", "2026-01-01T00:00:00+00:00"),
        participation=ParticipationCounts(population=4, times=[(0, 1), (2, 3)], rounds=rounds, mean_cohort=1.5),
        mix=LabelMix(sha256="ab", clients=2, classes=2, shown=[[3, 0], [1, 2]], spread={"mean_classes": 1.5}),
        curve=make_curve(curve if curve is not None else [accuracy * k / rounds for k in range(1, rounds + 1)])
        if accuracy is not None
        else Curve(),
        **changes,
    )


def make_loss_digest(algorithm: str = "fedcm", loss: float = 0.5, seed: int = 1, **changes: Any) -> Digest:
    """Make a digest of a regression; `loss` is the mean of the last rounds, the last is 0.01 lower, the best 0.02."""
    run = make_test_digest(algorithm, None, seed, **changes)
    rounds = run.summary["rounds"]
    falling = [loss * rounds / k for k in range(1, rounds + 1)]
    curve = make_curve(falling).model_copy(update={"test_accuracy": [None] * rounds, "test_loss": falling})
    figures = {"mean_last": loss, "mean_last_rounds": count_averaged_rounds(rounds)}
    losses = figures | {"last": round(loss - 0.01, 6), "best": round(loss - 0.02, 6)}
    summary = run.summary | {"test_loss": losses["last"], "test_losses": losses}
    return run.model_copy(update={"summary": summary, "curve": curve, "mix": None})


def make_decentralised_digest(algorithm: str = "d-sgd", accuracy: float = 0.8, seed: int = 1, **changes: Any) -> Digest:
    """Make a digest of a run on a graph, whose consensus distance halves in every round."""
    topology = changes.pop("topology", {"kind": "ring"})
    run = make_test_digest(algorithm, accuracy, seed, **changes)
    rounds = range(1, len(run.curve.round) + 1)
    curve = run.curve.model_copy(
        update={"bytes_down": [0 for _ in rounds], "consensus_distance": [0.5**k for k in rounds]}
    )
    experiment, summary = run.experiment | {"topology": topology}, run.summary | {"bytes_down": 0}
    return run.model_copy(update={"experiment": experiment, "summary": summary, "curve": curve})


def make_heterogeneous_digest(algorithm: str = "fedcm", accuracy: float = 0.8, **changes: Any) -> Digest:
    """Make a digest of a run with an availability, stragglers and unequal work: 12 simulated seconds per entry."""
    run = make_test_digest(algorithm, accuracy, **changes)
    count = len(run.curve.round)
    columns = {"available": 25.0, "missed": 2.5, "steps": 4.5, "steps_least": 1.0, "steps_most": 9.0}
    curve = run.curve.model_copy(
        update={name: [value] * count for name, value in columns.items()}
        | {"simulated_seconds": [12.0 * (k + 1) for k in range(count)]}
    )
    conditions = {"stragglers": {"deadline": 12.0}, "availability": {"kind": "day-night", "period": 24, "share": 0.5}}
    counts = [(1, 4 * count), (4, count), (9, 2 * count)]
    changed = {"experiment": run.experiment | conditions, "curve": curve, "step_counts": counts}
    return run.model_copy(update=changed)


def make_crowd(count: int = 20, **changes: Any) -> list[Digest]:
    """Make runs of FedCM, FedAvg and other algorithms, each more accurate than the one before."""
    names = ["fedcm", "fedavg", *(name for names in METHOD_GROUPS.values() for name in names)]
    chosen = list(dict.fromkeys(names))[:count]
    return [make_test_digest(name, 0.5 + k / 100, **changes) for k, name in enumerate(chosen)]


def make_curve(accuracies: list[float]) -> Curve:
    count = range(1, len(accuracies) + 1)
    return Curve(
        round=list(count),
        test_accuracy=list(accuracies),
        test_loss=[1 / k for k in count],
        train_loss=[2 / k for k in count],
        bytes_down=[2000 * k for k in count],
        bytes_up=[1000 * k for k in count],
        seconds=[0.5 * k for k in count],
    )


ALGORITHMS = ("fedcm", "fedavg", "fedadam", "scaffold", "feddyn")
PAPER = {  # CIFAR-10 in the FedCM paper, in the order of ALGORITHMS
    ("I", "iid"): (87.92, 82.80, 87.54, 85.41, 85.51),
    ("I", "dirichlet"): (87.61, 82.14, 86.77, 84.62, 85.14),
    ("II", "iid"): (86.85, 74.72, 85.25, 79.19, 83.39),
    ("II", "dirichlet"): (86.24, 73.93, 84.62, 78.59, 82.25),
}
PAPER_BY_ALPHA = {0.01: 85.93, 0.03: 86.55, 0.05: 87.50, 0.1: 87.61, 0.3: 85.90, 1.0: 82.14}


def make_paper_grid(shift: float = 0.0, **changes: Any) -> list[Digest]:
    """Make runs with the paper's own accuracies, in which its claims hold; `shift` moves all, as a seed might."""
    return [
        make_test_digest(
            algorithm,
            figure / 100 + shift,
            setting=setting,
            split=split,
            curve=make_oscillating_curve(figure / 100, 0.02 if algorithm == "fedadam" else 0.001),
            name=f"{algorithm}-{setting}-{split}",
            **changes,
        )
        for (setting, split), figures in PAPER.items()
        for algorithm, figure in zip(ALGORITHMS, figures, strict=True)
    ]


def make_paper_sweep(shift: float = 0.0, **changes: Any) -> list[Digest]:
    by_alpha = PAPER_BY_ALPHA.items()
    return [
        make_test_digest(accuracy=value / 100 + shift, options={"alpha": alpha}, **changes) for alpha, value in by_alpha
    ]


def make_oscillating_curve(accuracy: float, width: float, rounds: int = 40) -> list[float]:
    return [round(accuracy * min(1, k / 10) - width * (k % 2), 6) for k in range(1, rounds + 1)]
