"""Reject runs that cannot work before the first run of a sweep starts, not hours later."""

from collections.abc import Sequence
from pathlib import Path

from fedcm.errors import UserError
from fedcm.runs.build import TrainingSetup, build
from fedcm.sweeps.tasks import SweepTask


def reject_impossible_runs(tasks: Sequence[SweepTask], data_dir: Path | None) -> None:
    """Build one run of each kind of data and model.

    Raises:
        UserError: a run cannot work, or a finished run of the sweep was trained on other data.
    """
    kinds = set()
    for task in tasks:
        experiment = task.run.experiment
        kind = str((experiment.data, experiment.split, experiment.model))
        if task.state == "missing" and kind not in kinds:
            kinds.add(kind)
            setup = build(experiment.without_autotune(), data_dir)
            reject_other_data(setup, [other for other in tasks if other.run.experiment.data == experiment.data])


def reject_other_data(setup: TrainingSetup, tasks: Sequence[SweepTask]) -> None:
    """Reject a comparison of new runs with finished ones on other data from the same source."""
    for task in tasks:
        for part, digest in _read_checksums(task).items():
            if part != "split" and setup.checksums.get(part, digest) != digest:  # each seed has its own split
                raise UserError(
                    f"the runs of a comparison must have the same data, and {part} of {setup.experiment.data.source!r} "
                    f"changed after {task.folder.name!r} was trained on it; use --fresh, which archives the "
                    "existing runs and trains all of them, or another --runs-dir"
                )


def _read_checksums(task: SweepTask) -> dict[str, str]:
    """The checksums of a finished run's data; empty if they cannot be read."""
    try:
        return task.folder.read_provenance()["data_sha256"] if task.has_ended else {}
    except UserError:
        return {}
