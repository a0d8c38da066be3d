"""What identifies a run: its name, the hash of its settings, and its provenance. A resume must not change these."""

import dataclasses
import hashlib
import json
import platform
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from fedcm.algorithms.registry import get_algorithm_name
from fedcm.config.choices import IN_MEMORY
from fedcm.config.experiment import read_experiment, to_table
from fedcm.config.overrides import read_table
from fedcm.config.sections import Experiment
from fedcm.core.schedule_kinds import SCHEDULES
from fedcm.errors import UserError
from fedcm.runs.build import WEIGHTS, TrainingSetup
from fedcm.runs.folder import RunFolder
from fedcm.system.callbacks import Notify
from fedcm.system.code_hash import reject_other_functions
from fedcm.system.formatting import flatten_table, slugify
from fedcm.system.hardware import describe_cpu

_LIBRARIES = ("fedcm", "torch", "numpy", "scikit-learn", "safetensors")
# a resume may change these: no finished round uses them
FREE_SETTINGS = ("rounds", "evaluation.targets", "stop", "checkpoints")
# data and weights are compared by their checksums
_UNHASHED_SETTINGS = (*FREE_SETTINGS, "name", "cell", "model.weights")
_HORIZONS = ("client.schedule.over", "server.schedule.over")  # of schedules that depend on the number of rounds


def make_default_name(experiment: Experiment) -> str:
    """Return the name of a run that has none: experiment, algorithm and seed."""
    words = f"{experiment.name}-{get_algorithm_name(experiment.algorithm)}-seed{experiment.seed}"
    return slugify(words).strip("-.").lower()


def reject_unusable_name(name: str) -> None:
    """Raise a UserError if a run cannot have this name."""
    if not isinstance(name, str) or not (re.fullmatch(r"\w[\w.+=-]*", name) and len(name.encode()) <= 200):
        raise UserError(f"a run's name must be up to 200 letters, digits and . _ + = -, got {name!r}")


def hash_settings(experiment: Experiment) -> str:
    """Return the sha256 of all settings that finished rounds depend on; a run may be made longer.

    Data are compared by their checksums instead of their source. A schedule that depends on the number
    of rounds counts as one `over` that number.
    """
    text = _to_json(_select_hashed_settings(to_table(experiment)))
    return hashlib.sha256(text.encode()).hexdigest()


def list_changed_settings(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return the paths of the settings that differ between two tables, except those that a resume may change.

    >>> list_changed_settings({"rounds": 2, "client": {"lr": 0.1, "clip": 1}}, {"rounds": 9, "client": {"lr": 0.3}})
    ['client.clip', 'client.lr']
    """
    one, other = flatten_table(before), flatten_table(after)
    changed = {path for path in {**one, **other} if _to_json(one.get(path)) != _to_json(other.get(path))}
    return sorted(path for path in changed if not f"{path}.".startswith(tuple(f"{free}." for free in FREE_SETTINGS)))


def read_settings(folder: RunFolder) -> dict[str, Any]:
    """Return the settings of a run, every default filled in.

    A run of Python objects cannot be read as an experiment; its file has every setting anyway.
    """
    table = read_table(folder.experiment)
    model = table.get("model")
    if isinstance(model, Mapping) and str(model.get("name")).startswith(f"{IN_MEMORY}:"):
        return table
    return to_table(read_experiment(table))


def _select_hashed_settings(table: dict[str, Any]) -> dict[str, Any]:
    table = {key: dict(value) if isinstance(value, dict) else value for key, value in table.items()}
    for section in ("client", "server"):
        schedule = table[section].get("schedule")
        if schedule is not None and _takes_horizon(schedule):
            table[section]["schedule"] = {"over": table["rounds"], **schedule}
    for path in _UNHASHED_SETTINGS:
        section, _, key = path.rpartition(".")
        (table[section] if section else table).pop(key, None)
    if not table["privacy"]:  # as in earlier versions
        table.pop("privacy")
    reading = {key: value for key, value in table.pop("data").items() if key != "source" and value}
    if reading:  # a run that reads its data as earlier versions did keeps its hash
        table["data"] = reading
    if table["server"].get("mean") == "plain":  # a run of an earlier version keeps its hash
        del table["server"]["mean"]
    links = table.pop("federation")  # only the rounding of vectors changes numbers
    return table | {
        f"federation.{key}": links[key] for key in ("downlink", "momentum", "uplink") if links[key] != "exact"
    }


def _takes_horizon(schedule: Mapping[str, Any]) -> bool:
    """Return whether a schedule, as a table, depends on a number of rounds."""
    kind = SCHEDULES.get(schedule["kind"])  # None for a Python function
    return kind is None or "over" in {field.name for field in dataclasses.fields(kind)}


def _to_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)  # a user's own model may have dates as options


def make_provenance(setup: TrainingSetup, job: str | None = None) -> dict[str, Any]:
    """Return the contents of provenance.json: where a run comes from.

    Args:
        setup: The objects that train.
        job: The torchrun job that starts the run, if torchrun does.
    """
    constants = setup.problem.hash_constants()
    traits = {name: own._asdict() for name, own in setup.runner.metrics.traits.items()}
    return {
        "versions": read_versions(),
        "platform": platform.platform(),
        "cpu": describe_cpu(),
        "experiment_sha256": hash_settings(setup.experiment),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join(Path(part).name if k == 0 else part for k, part in enumerate(sys.argv)),
        "data_sha256": setup.checksums,
        "milliseconds_a_step": setup.step_milliseconds,
        "tuned": list(setup.tuned_settings),
        **({"metrics": traits} if setup.runner.metrics.is_given else {}),
        **({"functions_sha256": dict(setup.functions_sha256)} if setup.functions_sha256 else {}),
        **({"constants_sha256": constants} if constants is not None else {}),
        **({"job": job} if job is not None else {}),
    }


def read_versions() -> dict[str, str]:
    """Return the versions of Python and of the libraries that can change results."""
    return {"python": platform.python_version(), **{name: _read_version(name) for name in _LIBRARIES}}


def reject_changed_settings(folder: RunFolder, experiment: Experiment) -> None:
    """Raise a UserError if finished rounds of the run depend on a setting that has changed."""
    if folder.read_provenance().get("experiment_sha256") != hash_settings(experiment):
        paths = _find_changed_settings(folder, experiment)
        if paths and all(path in _HORIZONS for path in paths):
            raise UserError(
                f"rounds must not change, because {paths[0].removesuffix('.over')} depends on it; set {paths[0]} = "
                f"{read_settings(folder)['rounds']}, the number of rounds that the run began with, as well"
            )
        changed = ", ".join(paths)
        raise UserError(
            f"{changed or f'the settings in {str(folder.experiment)!r}'} must not change after the run began; a resume "
            f"may only change {', '.join(FREE_SETTINGS)}; start a new run with the other settings"
        )


def _find_changed_settings(folder: RunFolder, experiment: Experiment) -> list[str]:
    """Compare with the run's file; empty if the file itself was changed, because the old settings are gone then."""
    try:
        before, after = (_select_hashed_settings(table) for table in (read_settings(folder), to_table(experiment)))
        return list_changed_settings(before, after)
    except (UserError, KeyError, TypeError):
        return []


def reject_changed_data(folder: RunFolder, setup: TrainingSetup) -> None:
    """Raise a UserError if data, weights, functions or constants of the model are not those that the run began with."""
    provenance = folder.read_provenance()
    reject_other_functions(provenance.get("functions_sha256", {}), setup.functions_sha256, f"the run {folder.name!r}")
    if setup.checksums.get(WEIGHTS) != provenance["data_sha256"].get(WEIGHTS):
        raise UserError(
            f"the run {folder.name!r} must be resumed with the file of weights (model.weights) that it began with, and "
            "it has another checksum; restore the old file or start a new run"
        )
    for part, digest in provenance["data_sha256"].items():
        if setup.checksums.get(part) != digest:
            raise UserError(
                f"the run {folder.name!r} must be resumed on the data that it began with, and {part!r} has another "
                "checksum; restore the old data or start a new run"
            )
    constants = setup.problem.hash_constants()
    if provenance.get("constants_sha256", constants) != constants:
        raise UserError(
            f"the run {folder.name!r} must be resumed with the frozen parameters and buffers that its model began "
            "with, and they have another checksum; restore the old ones or start a new run"
        )


def report_changed_versions(folder: RunFolder, notify: Notify) -> None:
    """Report every library whose version differs from the one that the run began with."""
    before = folder.read_provenance().get("versions", {})
    for library, current in read_versions().items():
        if before.get(library) != current:
            notify(f"the run began with {library} {before.get(library)} and resumes with {current}: bits may differ")


def _read_version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "unknown"
