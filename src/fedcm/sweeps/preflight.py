"""Reject runs that cannot work before the first run of a sweep starts, not hours later."""

from collections.abc import Sequence
from pathlib import Path

from fedcm.config.experiment import to_table
from fedcm.config.sections import Experiment
from fedcm.data import load_source
from fedcm.data.dataset import ClientsOnDemand, Dataset
from fedcm.errors import UserError
from fedcm.runs.build import TrainingSetup, build
from fedcm.sweeps.tasks import SweepTask

_IGNORED = ("name", "seed", "cell")  # runs that differ only in these work alike
_BY_SEED = ("split", "validation")  # each seed draws its own


def reject_impossible_runs(tasks: Sequence[SweepTask], data_dir: Path | None) -> None:
    """Build every missing run, but only one of several that differ in nothing but their seed.

    Each dataset is loaded once, and each model is compiled once.

    Raises:
        UserError: If a run cannot work, or a finished run of the sweep was trained on other data.
    """
    kinds: set[str] = set()
    compiled: set[str] = set()
    sources: dict[str, Dataset | ClientsOnDemand] = {}
    for task in tasks:
        experiment = task.run.experiment.without_autotune()
        kind = repr({key: value for key, value in to_table(experiment).items() if key not in _IGNORED})
        if task.outcome != "missing" or kind in kinds:
            continue
        kinds.add(kind)
        name = experiment.data.source
        is_new = name not in sources
        if is_new:
            sources[name] = load_source(name, data_dir)
        setup = build(_compile_once(experiment, compiled), data_dir, data=sources[name])
        if is_new:
            reject_other_data(setup, [other for other in tasks if other.run.experiment.data == experiment.data])


def _compile_once(experiment: Experiment, compiled: set[str]) -> Experiment:
    """Return the experiment without compilation if one with the same model and batches was compiled before."""
    engine = experiment.engine
    if engine.compile != "on":
        return experiment
    kind = repr((experiment.data, experiment.model, experiment.client.batch_size, engine))
    if kind not in compiled:
        compiled.add(kind)
        return experiment
    return experiment.model_copy(update={"engine": engine.model_copy(update={"compile": "off"})})


def reject_other_data(setup: TrainingSetup, tasks: Sequence[SweepTask]) -> None:
    """Reject a comparison of new runs with finished ones on other data from the same source."""
    for task in tasks:
        for part, digest in _read_checksums(task).items():
            if part not in _BY_SEED and setup.checksums.get(part, digest) != digest:
                raise UserError(
                    f"the runs of a comparison must have the same data, but {part} of {setup.experiment.data.source!r} "
                    f"changed after {task.folder.name!r} was trained on it; use --fresh, which archives the "
                    "existing runs and trains all of them, or another --runs-dir"
                )


def _read_checksums(task: SweepTask) -> dict[str, str]:
    """The checksums of a finished run's data; empty if they cannot be read."""
    try:
        return task.folder.read_provenance()["data_sha256"] if task.has_ended else {}
    except UserError:
        return {}
