"""What cannot work is refused before the first run of a series begins, not when its turn comes hours later."""

from collections.abc import Sequence
from pathlib import Path

from fedcm.assembly import assemble
from fedcm.planning import without_trial
from fedcm.series import Task


def refuse_what_cannot_begin(tasks: Sequence[Task], data_dir: Path | None) -> None:
    """Puts together one run of each kind of data and model."""
    kinds = set()
    for task in tasks:
        experiment = task.run.experiment
        kind = str((experiment.data, experiment.split, experiment.model))
        if task.state == "missing" and kind not in kinds:
            kinds.add(kind)
            assemble(without_trial(experiment), data_dir)
