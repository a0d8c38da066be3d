"""An overview of runs: what `fedcm runs` lists."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedcm.errors import UserError
from fedcm.runs.autotune import list_tuned_settings
from fedcm.runs.evidence.verification import verify_run
from fedcm.runs.folder import RunFolder
from fedcm.runs.identity import read_settings
from fedcm.runs.summary import Traits, read_traits
from fedcm.system.error_messages import describe_error
from fedcm.system.formatting import flatten_table

_OWN_COLUMNS = ("name", "seed", "data.source", "algorithm.name", "rounds")  # settings that have a column of their own
_IGNORED = ("cell", "checkpoints", "federation")


def make_overview(folders: Sequence[RunFolder], runs_dir: Path) -> list[dict[str, Any]]:
    """Describe each run in a few values, for a table or JSON.

    Returns:
        One dict per run: name, started, data, seed, algorithm, its settings, state, rounds, the last and best scores,
        the headline metric, and the settings that differ between runs of the same experiment. Settings that autotune
        chose are left out. `evidence` is what the comparison with the run's manifest found: "intact", "damaged", "no
        manifest" or "not finished". A damaged run has only name, path, state, evidence and `damage`, which says why.
    """
    tables: dict[Path, dict[str, Any]] = {}
    described = [_describe_run(folder, runs_dir, tables) for folder in folders]
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


def _describe_run(folder: RunFolder, runs_dir: Path, tables: dict[Path, dict[str, Any]]) -> dict[str, Any]:
    scores = [f"{which}_{metric}" for metric in ("accuracy", "test_loss") for which in ("last", "best")]
    keys = (
        "started",
        "data",
        "seed",
        "algorithm",
        "settings",
        "differs",
        "done",
        "rounds",
        *scores,
        "headline",
        "stopped_early",
        "evidence",
        "damage",
    )
    run: dict[str, Any] = dict.fromkeys(keys)
    run |= {"name": str(folder.path.relative_to(runs_dir)), "state": "damaged", "path": str(folder.path)}
    verified = verify_run(folder)
    run["evidence"] = verified.state
    if verified.state == "damaged":
        return run | {"damage": "; ".join(verified.damage)}
    try:
        table = read_settings(folder)
        chosen = _list_chosen_settings(folder, table)
        run |= _read_values(folder, table)
    except (UserError, OSError, KeyError, TypeError, AttributeError) as error:  # the last three: values are mixed up
        known = isinstance(error, UserError)
        return run | {"damage": str(error) if known else f"its files cannot be read ({describe_error(error)})"}
    tables[folder.path] = chosen
    return run


def _list_chosen_settings(folder: RunFolder, table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings by their paths, without those that autotune chose."""
    tuned = list_tuned_settings(table.get("engine", {}), folder.try_read_provenance())
    flat = flatten_table({key: value for key, value in table.items() if key not in _IGNORED})
    return {path: value for path, value in flat.items() if path not in {f"engine.{key}" for key in tuned}}


def _read_values(folder: RunFolder, table: Mapping[str, Any]) -> dict[str, Any]:
    metrics = folder.read_metrics()
    accuracies, losses = _read_scores(metrics, "test_accuracy"), _read_scores(metrics, "test_loss")
    return {
        "started": folder.try_read_provenance().get("started"),
        "data": table["data"]["source"],
        "seed": table["seed"],
        "algorithm": table["algorithm"]["name"],
        "settings": {name: value for name, value in table["algorithm"].items() if name != "name"},
        "state": folder.read_outcome(),
        "done": len(metrics),
        "rounds": table["rounds"],
        "last_accuracy": accuracies[-1] if accuracies else None,
        "best_accuracy": max(accuracies) if accuracies else None,
        "last_test_loss": losses[-1] if losses else None,
        "best_test_loss": min(losses) if losses else None,
        "stopped_early": (folder.read_summary() or {}).get("stopped_early"),
        "headline": _describe_headline(metrics, read_traits(folder.try_read_provenance())),
    }


def _describe_headline(metrics: Sequence[Mapping[str, Any]], traits: Traits) -> dict[str, Any] | None:
    """Return name, traits, last and best value of the first metric, and its last value on validation data.

    Without evaluations of the test data, the values are means over clients, and `over_clients` is true.
    """
    name, own = next(iter(traits.items()))
    values, validation = _read_scores(metrics, f"test_{name}"), _read_scores(metrics, f"validation_{name}")
    over_clients = not values and not validation
    if over_clients:
        values = _read_scores(metrics, f"clients_{name}_mean")
    if not values and not validation:
        return None
    best = (max if own["higher_is_better"] else min)(values, default=None)
    last = {"last": values[-1] if values else None, "validation": validation[-1] if validation else None}
    return {"name": name, **own, **last, "best": best, "over_clients": over_clients}


def _read_scores(metrics: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    return [float(line[name]) for line in metrics if isinstance(line.get(name), int | float)]
