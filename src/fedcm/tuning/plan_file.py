"""`tune.json`: the space, the experiments, the seed and the budget of a tuning.

A tuning continues only with the same experiments and spaces. Its budget may grow, and algorithms may be added.
"""

import json
from pathlib import Path
from typing import Any

from fedcm.errors import UserError
from fedcm.system.files import write_text
from fedcm.system.formatting import flatten_table
from fedcm.tuning.plan import TuningPlan

_FILE = "tune.json"


def record_plan(plan: TuningPlan, folder: Path) -> None:
    """Write `tune.json`, or check that the tuning in the folder is the same.

    Raises:
        UserError: If the folder has a tuning of another experiment or space.
    """
    existing = read_plan_file(folder)
    algorithms: dict[str, Any] = existing.get("algorithms", {})
    for one in plan.algorithms:
        record = json.loads(json.dumps(one.to_record()))
        if one.algorithm in algorithms and (changed := _list_differences(algorithms[one.algorithm], record)):
            raise UserError(
                f"the tuning {str(folder)!r} must be continued with the same experiment and space, but {changed} "
                f"of {one.algorithm!r} changed; use --fresh, or another --name"
            )
        algorithms[one.algorithm] = record
    if existing.get("seed", plan.seed) != plan.seed:
        raise UserError(
            f"the tuning {str(folder)!r} must be continued with its seed {existing['seed']}, got {plan.seed}; use "
            "--fresh, or another --name"
        )
    record = {"seed": plan.seed, "trials": plan.trials, "seeds": plan.seeds, "validation": plan.validation}
    write_text(folder / _FILE, json.dumps(record | {"algorithms": algorithms}, indent=2) + "\n")


def read_plan_file(folder: Path) -> dict[str, Any]:
    """Return the contents of `tune.json`; empty if there is no tuning in the folder.

    Raises:
        UserError: If the folder is something else, or the file is damaged.
    """
    if not (folder / _FILE).is_file():
        if folder.exists() and not (folder.is_dir() and all(path.name == ".lock" for path in folder.iterdir())):
            raise UserError(f"{str(folder)!r} exists already and is not a tuning; choose another --name")
        return {}
    try:
        record = json.loads((folder / _FILE).read_text(encoding="utf-8"))
        if not isinstance(record, dict) or not isinstance(record.get("algorithms"), dict):
            raise ValueError
    except ValueError:
        raise UserError(f"{str(folder / _FILE)!r} is damaged; use --fresh, or another --name") from None
    return record


def _list_differences(existing: dict[str, Any], wanted: dict[str, Any]) -> str:
    one, other = ({key: str(value) for key, value in flatten_table(table).items()} for table in (existing, wanted))
    paths = [path for path in {**one, **other} if one.get(path) != other.get(path)]
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    return ", ".join(path.removeprefix("experiment.").replace("space.", "the space of ") for path in paths[:3]) + more
