"""Digests of planned runs with made accuracies, to test the pages that are made from digests."""

from collections.abc import Callable
from pathlib import Path

from made_digests import make_curve
from results_page.studies import STUDIES
from results_page.study_runs import StudyRuns, read_results

from fedcm.config.experiment import to_table
from fedcm.reports.digest import Digest, ParticipationCounts, write_digest
from fedcm.runs.summary import count_averaged_rounds
from fedcm.sweeps.grid import GridRun, expand_grid


def make_planned_digest(run: GridRun, accuracy: float) -> Digest:
    """Make the digest of a finished run whose accuracy grows by equal steps up to `accuracy`."""
    experiment = to_table(run.experiment)
    rounds, every = experiment["rounds"], experiment["evaluation"]["every"]
    count = rounds // every
    curve = make_curve([accuracy * k / count for k in range(1, count + 1)])
    scores = {"mean_last_rounds": count_averaged_rounds(rounds)} | dict.fromkeys(
        ("mean_last", "last", "best"), accuracy
    )
    sent = {"bytes_down": 2000 * rounds, "bytes_up": 1000 * rounds, "seconds": 0.5 * rounds, "params_sha256": "0" * 64}
    return Digest(
        name=run.name,
        state="finished",
        experiment=experiment,
        summary={"rounds": rounds, "accuracy": scores} | sent,
        cpu={"model": "AMD EPYC, family 25, model 17"},
        participation=ParticipationCounts(population=500, rounds=rounds, mean_cohort=10.0),
        curve=curve.model_copy(update={"round": [every * k for k in range(1, count + 1)]}),
    )


def make_diverged(run: Digest, evaluations: int) -> Digest:
    """Return the run as if it had diverged after a number of evaluations."""
    done = 0 if evaluations == 0 else run.curve.round[evaluations - 1]
    summary = {key: value for key, value in run.summary.items() if key != "accuracy"}
    if evaluations:
        last = run.curve.test_accuracy[evaluations - 1]
        summary["accuracy"] = {"mean_last_rounds": done} | dict.fromkeys(("mean_last", "last", "best"), last)
    columns = {
        name: column[:evaluations] for name in type(run.curve).model_fields if (column := getattr(run.curve, name))
    }
    changes = {"state": "diverged", "summary": summary | {"rounds": done, "divergence_round": done}}
    return run.model_copy(update=changes | {"curve": run.curve.model_copy(update=columns)})


def write_study(folder: Path, name: str, make: Callable[[GridRun], Digest | None]) -> StudyRuns:
    """Write a digest for every planned run of a study for which `make` returns one, and read the study."""
    study = next(study for study in STUDIES if study.name == name)
    (folder / name).mkdir()
    for run in expand_grid(study.path):
        if digest := make(run):
            write_digest(digest, folder / name / f"{run.name}.json")
    return read_results(folder)[name]
