"""An overview of runs: what `fedcm runs` lists."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedcm.config.experiment import read_experiment, to_table
from fedcm.config.overrides import read_table
from fedcm.config.sections import IN_MEMORY
from fedcm.errors import UserError
from fedcm.runs.folder import RunFolder

_OWN_COLUMNS = ("name", "seed", "data.source", "algorithm.name", "rounds")  # settings that have a column of their own
_IGNORED = ("cell", "checkpoints", "federation")


def describe_runs(folders: Sequence[RunFolder], runs_dir: Path) -> list[dict[str, Any]]:
    """Describe each run in a few values, for a table or JSON.

    Returns:
        One dict per run: name, started, data, seed, algorithm, its settings, the settings that differ between runs of
        the same experiment, state, rounds, and the last and best scores. A damaged run has only name, path and state.
    """
    tables: dict[Path, dict[str, Any]] = {}
    described = [_describe(folder, runs_dir, tables) for folder in folders]
    for run, folder in zip(described, folders, strict=True):
        if folder.path in tables:
            own = tables[folder.path]
            alike = [other for other in tables.values() if other["name"] == own["name"]]
            run["differs"] = {
                path: value
                for path, value in own.items()
                if path not in _OWN_COLUMNS and any(other.get(path) != value for other in alike)
            }
    return described


def _describe(folder: RunFolder, runs_dir: Path, tables: dict[Path, dict[str, Any]]) -> dict[str, Any]:
    scores = [f"{which}_{metric}" for metric in ("accuracy", "test_loss") for which in ("last", "best")]
    keys = ("started", "data", "seed", "algorithm", "settings", "differs", "done", "rounds", *scores)
    run: dict[str, Any] = dict.fromkeys(keys)
    run |= {"name": str(folder.path.relative_to(runs_dir)), "state": "damaged", "path": str(folder.path)}
    try:
        table = _read_settings(folder)
        run |= _read_values(folder, table)
    except (UserError, OSError, KeyError, TypeError, AttributeError):  # the last three: tables and values are mixed up
        return run
    tables[folder.path] = dict(_flatten({key: value for key, value in table.items() if key not in _IGNORED}))
    return run


def _read_values(folder: RunFolder, table: Mapping[str, Any]) -> dict[str, Any]:
    metrics, summary = folder.read_metrics(), folder.read_summary() or {}
    accuracies, losses = _read_scores(metrics, "test_accuracy"), _read_scores(metrics, "test_loss")
    return {
        "started": _read_start(folder),
        "data": table["data"]["source"],
        "seed": table["seed"],
        "algorithm": table["algorithm"]["name"],
        "settings": {name: value for name, value in table["algorithm"].items() if name != "name"},
        "state": summary.get("outcome") or ("running" if folder.is_locked() else "stopped"),
        "done": len(metrics),
        "rounds": table["rounds"],
        "last_accuracy": accuracies[-1] if accuracies else None,
        "best_accuracy": max(accuracies) if accuracies else None,
        "last_test_loss": losses[-1] if losses else None,
        "best_test_loss": min(losses) if losses else None,
    }


def _read_scores(metrics: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    return [float(line[name]) for line in metrics if isinstance(line.get(name), int | float)]


def _read_settings(folder: RunFolder) -> dict[str, Any]:
    """Return the settings of a run, every default filled in.

    A run of Python objects cannot be read as an experiment; its file has every setting anyway.
    """
    table = read_table(folder.experiment)
    model = table.get("model")
    if isinstance(model, Mapping) and str(model.get("name")).startswith(f"{IN_MEMORY}:"):
        return table
    return to_table(read_experiment(table))


def _read_start(folder: RunFolder) -> str | None:
    try:
        return folder.read_provenance().get("started")
    except UserError:
        return None


def _flatten(table: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    for key, value in table.items():
        if isinstance(value, Mapping):
            pairs += _flatten(value, f"{prefix}{key}.")
        else:
            pairs.append((f"{prefix}{key}", value))
    return pairs
