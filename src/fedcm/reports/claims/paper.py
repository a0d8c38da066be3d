"""What the FedCM paper fixes: its α, which methods correct nothing at the clients, and the scale of its figures, with
how that of runs beside which they are published differs from it."""

from collections.abc import Iterable

from fedcm.reports.digest import Digest

DEFAULT_ALPHA = 0.1  # of FedCM; as in fedcm.algorithms.fedcm, which needs torch
UNCORRECTED = ("fedavg", "fedadam")  # the methods whose clients take plain gradient steps
_MODEL, _ROUNDS = "resnet18", 4000
_FIGURES = {  # data set and clients (100 in setting I, 500 in II): Tables 1 to 3
    ("cifar10", 100): {
        *(87.92, 82.80, 87.54, 85.41, 85.51, 87.61, 82.14, 86.77, 84.62, 85.14),
        *(85.93, 86.55, 87.50, 85.90),
    },
    ("cifar10", 500): {86.85, 74.72, 85.25, 79.19, 83.39, 86.24, 73.93, 84.62, 78.59, 82.25},
    ("cifar100", 100): {58.16, 49.18, 54.91, 55.68, 53.52, 57.96, 47.76, 54.67, 55.31, 52.95},
    ("cifar100", 500): {56.68, 40.93, 52.31, 47.91, 48.19, 56.64, 40.08, 52.24, 47.71, 47.98},
}


def other_scale(runs: Iterable[Digest]) -> str:
    """In a few words; nothing where the scale is the paper's or the figures are not."""
    here: dict[str, dict[str, None]] = {}
    for run in runs:
        source, clients = run.experiment["data"]["source"], run.experiment["split"].get("clients")
        published = [there for (data, there), known in _FIGURES.items() if data == source and run.published in known]
        if not published:
            continue
        pairs = [("model", _MODEL, run.experiment["model"]["name"]), ("rounds", _ROUNDS, run.experiment["rounds"])]
        if clients not in published:
            pairs.append(("clients", published[0], clients))
        for what, there, own in pairs:
            if own != there:
                here.setdefault(f"{what} {there}", {})[str(own)] = None
    return ", ".join(f"{there} (here {' and '.join(sorted(own))})" for there, own in here.items())
