"""The table of the guide to augmentation on CIFAR-10, from the digests in results/augmentation.

fedcm report RUNS --digests results/augmentation      RUNS is the folder of the guide's sweep
"""

from recorded import read_digests
from results_page.cells import write_table

from fedcm.reports.digest import Digest

FOLDER = "augmentation"


def read_runs() -> dict[tuple[str, str], Digest]:
    """Return the runs by augmentation and schedule, in the order of the table."""
    runs = {}
    for run in read_digests(FOLDER):
        augment = ", ".join(run.experiment["data"]["augment"]) or "none"
        runs[augment, run.experiment["client"]["schedule"]["kind"]] = run
    return {
        (augment, kind): runs[augment, kind] for augment in ("none", "crop, flip") for kind in ("constant", "cosine")
    }


def get_validation(run: Digest) -> float:
    """Return the mean validation accuracy of the last rounds in %."""
    return 100 * run.summary["validation"]["accuracy"]["mean_last"]


def write_runs() -> str:
    """Return the table of the four runs; bold is the choice by validation data."""
    runs = read_runs()
    best = max(map(get_validation, runs.values()))
    rows = []
    for (augment, kind), run in runs.items():
        assert run.accuracy
        validation = f"{get_validation(run):.2f} %"
        accuracies = [f"**{validation}**" if get_validation(run) == best else validation]
        accuracies += [f"{100 * run.accuracy[key]:.2f} %" for key in ("mean_last", "last")]
        losses = [f"{column[-1]:.3f}" for column in (run.curve.train_loss, run.curve.test_loss)]
        rows.append([augment, kind, *accuracies, *losses])
    (count,) = {run.accuracy["mean_last_rounds"] for run in runs.values() if run.accuracy}
    last = max(next(iter(runs.values())).curve.round)
    columns = (f"validation, last {count} rounds", f"test, last {count} rounds", f"test, after round {last}")
    return write_table(("augmentation", "schedule", *columns, "training loss", "test loss"), rows, texts=2)
