"""Read the TOML file of an experiment as a table, and change the table: its algorithm, or single settings."""

import copy
import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fedcm.algorithms import ALGORITHMS
from fedcm.config.schema import read_toml
from fedcm.config.toml_values import read_value, read_values, write_value
from fedcm.core.aggregation.robust import MEANS
from fedcm.core.attacks import ATTACKS
from fedcm.core.conditions.availability import AVAILABILITY
from fedcm.core.local.optimizers import OPTIMIZERS
from fedcm.core.participation import PARTICIPATION
from fedcm.core.schedule_kinds import SCHEDULES
from fedcm.core.topology import TOPOLOGIES
from fedcm.data.partition import SPLITS
from fedcm.data.work.amounts import WORK
from fedcm.errors import UserError, suggest

Table = dict[str, Any]


def read_table(path: Path) -> Table:
    """Return the table in the TOML file of an experiment; its name is the file's name by default."""
    table = read_toml(path, "experiment")
    table.setdefault("name", path.stem)
    return table


def apply_overrides(table: Table, overrides: Iterable[str], algorithm: str | None = None) -> Table:
    """Return the table with another algorithm and with other settings.

    Args:
        table: The experiment's table; it is not changed.
        overrides: The settings to change, each `path=value`. A value is TOML, or else a plain string.
        algorithm: The algorithm, by default the table's own. An override of `algorithm.name` wins.

    Raises:
        UserError: If an override has another form, or the table cannot hold it.

    >>> apply_overrides({"client": {"lr": 0.1}}, ["client.lr=0.05", "data.source=cifar10"])
    {'client': {'lr': 0.05}, 'data': {'source': 'cifar10'}}
    """
    changes = [_parse_override(override) for override in overrides]
    for keys, value in changes:
        if keys == ["algorithm", "name"]:
            algorithm = value
    _reject_exclusive_changes(changes)
    table = select_algorithm(table, algorithm)
    for keys, value in changes:
        set_value(table, keys, value)
    return table


def _reject_exclusive_changes(changes: Iterable[tuple[list[str], Any]]) -> None:
    """Raise UserError if two settings are changed of which one replaces the other."""
    given = {tuple(keys[:2]): value for keys, value in changes}
    if ("client", "steps") in given and ("client", "epochs") in given:
        raise UserError("client.steps and client.epochs exclude each other; set one of them")
    if ("client", "schedule") in given and given.get(("client", "lr_decay"), 1) != 1:
        raise UserError("client.schedule and client.lr_decay exclude each other; set one of them")


def set_value(table: Table, keys: list[str], value: Any) -> None:
    """Put one setting into the table, in place.

    Raises:
        UserError: If a key on the way is a value and not a table.
    """
    _drop_replaced_settings(table, keys, value)
    inner = table
    for key in keys[:-1]:
        inner = inner.setdefault(key, {})
        if not isinstance(inner, dict):
            raise UserError(f"{'.'.join(keys)} cannot be set, because {key!r} is a value, not a table")
    inner[keys[-1]] = value


def merge_table(table: Table, changes: Mapping[str, Any], parents: tuple[str, ...] = ()) -> None:
    """Put a table of settings into the table, in place; `kind` and `name` first, because the others depend on them."""
    if isinstance(client := changes.get("client"), Mapping) and not parents:
        _reject_exclusive_changes([(["client", key], value) for key, value in client.items()])
    for key in sorted(changes, key=lambda key: key not in ("kind", "name")):
        path = [*parents, key]
        if isinstance(changes[key], Mapping) and not _is_number(table, path):
            merge_table(table, changes[key], (*parents, key))
        else:
            set_value(table, path, copy.deepcopy(changes[key]))


def _is_number(table: Table, path: list[str]) -> bool:
    """Return whether the table has a number at a path, such as `client.steps`, that may also be a table."""
    value: Any = table
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return isinstance(value, int | float)


def select_algorithm(table: Table, name: str | None = None) -> Table:
    """Return the table with this algorithm, by default its own, and with the settings of its `[for.NAME]` table.

    An algorithm other than the table's own starts from its defaults.

    Raises:
        UserError: If `[algorithm]` or `[for]` has another form, or `[for.NAME]` names an unknown algorithm.
    """
    table = copy.deepcopy(table)
    own, special = table.get("algorithm", {}), table.pop("for", {})
    if not isinstance(own, dict):
        raise UserError(f"algorithm must be a table, got {own!r}")
    if not isinstance(special, dict) or not all(isinstance(changes, dict) for changes in special.values()):
        raise UserError(f"for must be a table of tables, for example [for.fedadam], got {special!r}")
    for known in special:
        if known not in ALGORITHMS and ":" not in known:
            raise UserError(f"[for.{known}]: there is no algorithm {known!r}; {suggest(known, ALGORITHMS)}")
    if name is not None and own.get("name") != name:
        table["algorithm"] = {"name": name}
    else:
        name = own.get("name")
    _merge_recursively(table, special.get(name, {}) if isinstance(name, str) else {})
    return table


def _drop_replaced_settings(table: Table, keys: list[str], value: Any) -> None:
    """Remove the settings that a new kind of split, schedule or another choice does not have or replaces."""
    section = table.get(keys[0])
    if not isinstance(section, dict) or section.get(keys[-1]) == value:
        return
    match keys:
        case ["client", "optimizer", "name"]:
            if isinstance(section.get("optimizer"), dict):
                section["optimizer"] = _keep_known_fields(OPTIMIZERS, section["optimizer"], "name", value)
        case ["client", "lr_decay"]:
            if value != 1:
                section.pop("schedule", None)
        case ["client", "schedule"]:
            section.pop("lr_decay", None)
        case ["client" | "server", "schedule" | "step_schedule" as inner, "kind"]:
            if [keys[0], inner] == ["client", "schedule"]:
                section.pop("lr_decay", None)
            if isinstance(section.get(inner), dict):
                section[inner] = _keep_known_fields(SCHEDULES, section[inner], "kind", value)
        case ["server", "mean", "kind"]:
            if isinstance(section.get("mean"), dict):
                section["mean"] = _keep_known_fields(MEANS, section["mean"], "kind", value)
        case [where, "kind"] if where in _KINDS:
            table[where] = _keep_known_fields(_KINDS[where], section, "kind", value)
        case ["model", "name"]:
            table["model"] = {}
        case ["client", "steps" | "epochs" as unit, *rest]:
            section.pop("epochs" if unit == "steps" else "steps", None)
            if rest == ["kind"] and isinstance(section.get(unit), dict):
                section[unit] = _keep_known_fields(WORK, section[unit], "kind", value)


_KINDS: dict[str, Mapping[str, type]] = {
    "split": SPLITS,
    "participation": PARTICIPATION,
    "topology": TOPOLOGIES,
    "availability": AVAILABILITY,
    "attack": ATTACKS,
}


def _keep_known_fields(kinds: Mapping[str, Any], table: Table, key: str, name: Any) -> Table:
    """Return the settings of a table that a newly chosen kind has too; all of them if there is no such kind."""
    if table.get(key) == name or not isinstance(name, str) or name not in kinds:
        return table
    known = {field.name for field in dataclasses.fields(kinds[name])}
    return {key: setting for key, setting in table.items() if key in known}


def _parse_override(override: str) -> tuple[list[str], Any]:
    path, equals, text = override.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys):
        raise UserError(f"a setting to change must be path=value, for example client.lr=0.05, got {override!r}")
    try:
        return keys, read_value(text)
    except UserError as error:
        raise UserError(f"a setting to change must be path=value: {error}") from None


def parse_values(setting: str) -> tuple[list[str], list[Any]]:
    """Parse `path=value,value` into the keys of the path and the values.

    Raises:
        UserError: If the text has another form, or a value twice.

    >>> parse_values("model.hidden=[64, 32], [128]")
    (['model', 'hidden'], [[64, 32], [128]])
    """
    path, equals, text = setting.partition("=")
    keys = [key.strip() for key in path.split(".")]
    if not equals or not all(keys):
        raise UserError(f"a setting to sweep must be path=value,value, for example client.lr=0.1,0.3, got {setting!r}")
    try:
        values = read_values(text)
    except UserError as error:
        raise UserError(
            f"a setting to sweep must be path=value,value, for example client.lr=0.1,0.3, got {setting!r}: {error}"
        ) from None
    texts = [write_value(value) for value in values]
    if repeated := next((text for text in texts if texts.count(text) > 1), None):
        raise UserError(f"a setting to sweep must have distinct values, but {setting!r} has {repeated} twice")
    return keys, values


def _merge_recursively(table: Table, changes: Mapping[str, Any]) -> None:
    for key, value in changes.items():
        if isinstance(value, Mapping) and isinstance(table.get(key), dict):
            _merge_recursively(table[key], value)
        else:
            table[key] = copy.deepcopy(value)
