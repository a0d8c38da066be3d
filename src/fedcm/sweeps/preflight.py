"""What cannot work is refused before the first run of a series begins, not when its turn comes hours later."""

from collections.abc import Sequence
from pathlib import Path

from fedcm.errors import UserError
from fedcm.runs.assembly import Assembly, assemble
from fedcm.sweeps.estimate import without_trial
from fedcm.sweeps.run_parallel import SweepTask


def reject_impossible_runs(tasks: Sequence[SweepTask], data_dir: Path | None) -> None:
    """Puts together one run of each kind of data and model."""
    kinds = set()
    for task in tasks:
        experiment = task.run.experiment
        kind = str((experiment.data, experiment.split, experiment.model))
        if task.state == "missing" and kind not in kinds:
            kinds.add(kind)
            built = assemble(without_trial(experiment), data_dir)
            reject_other_data(built, [other for other in tasks if other.run.experiment.data == experiment.data])


def reject_other_data(built: Assembly, tasks: Sequence[SweepTask]) -> None:
    """Refuse to compare new runs with finished ones that had other data from the same source."""
    for task in tasks:
        for part, digest in _read_checksums(task).items():
            if part != "split" and built.checksums.get(part, digest) != digest:  # seeds have splits of their own
                raise UserError(
                    f"the runs of a comparison must have the same data, and {part} of {built.experiment.data.source!r} "
                    f"changed after {task.folder.name!r} was trained on it; use --fresh, which archives the runs that "
                    "are there and trains all of them, or another --runs-dir"
                )


def _read_checksums(task: SweepTask) -> dict[str, str]:
    """Of a finished run's data; nothing if they cannot be read."""
    try:
        return task.folder.read_provenance()["data_sha256"] if task.over else {}
    except UserError:
        return {}
