"""An experiment's TOML file as a table, and what is put over it: another algorithm, settings of the command line."""

import copy
import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fedcm.algorithms import ALGORITHMS
from fedcm.config.schema import read_toml
from fedcm.config.toml_values import read_value, read_values, write_value
from fedcm.core.participation import PARTICIPATION
from fedcm.data.partition import SPLITS
from fedcm.errors import UserError, suggest

Table = dict[str, Any]


def read_table(path: Path) -> Table:
    """The experiment's TOML file as it stands."""
    table = read_toml(path, "experiment")
    table.setdefault("name", path.stem)
    return table


def apply_overrides(table: Table, settings: Iterable[str], algorithm: str | None = None) -> Table:
    """The table for this algorithm (`--set algorithm.name=…`, or else its own), then `path=value` settings put in.

    A value is TOML, or else a plain string.

    >>> override({"client": {"lr": 0.1}}, ["client.lr=0.05", "data.source=cifar10"])
    {'client': {'lr': 0.05}, 'data': {'source': 'cifar10'}}
    """
    changes = [_parsed(setting) for setting in settings]
    for keys, value in changes:
        if keys == ["algorithm", "name"]:
            algorithm = value
    table = select_algorithm(table, algorithm)
    for keys, value in changes:
        set_value(table, keys, value)
    return table


def set_value(table: Table, keys: list[str], value: Any) -> None:
    """One setting into the table, in place."""
    _make_room(table, keys, value)
    inner = table
    for key in keys[:-1]:
        inner = inner.setdefault(key, {})
        if not isinstance(inner, dict):
            raise UserError(f"--set {'.'.join(keys)}: {key!r} is a value, not a table")
    inner[keys[-1]] = value


def merge_table(table: Table, changes: Mapping[str, Any], under: tuple[str, ...] = ()) -> None:
    """A table of settings into the table, in place; those that choose a kind first, since the others belong to it."""
    for key in sorted(changes, key=lambda key: key not in ("kind", "name")):
        if isinstance(changes[key], Mapping):
            merge_table(table, changes[key], (*under, key))
        else:
            set_value(table, [*under, key], changes[key])


def select_algorithm(table: Table, name: str | None = None) -> Table:
    """The table with this algorithm (its own unless given), and what `[for.NAME]` says of any setting.

    Another algorithm than the table's own has its defaults, not the settings that stand there for the own one.
    """
    table = copy.deepcopy(table)
    own, special = table.get("algorithm", {}), table.pop("for", {})
    if not isinstance(own, dict):
        raise UserError(f"algorithm must be a table, got {own!r}")
    if not isinstance(special, dict) or not all(isinstance(changes, dict) for changes in special.values()):
        raise UserError(f"for must be a table of tables, such as [for.fedadam], got {special!r}")
    for known in special:
        if known not in ALGORITHMS and ":" not in known:
            raise UserError(f"[for.{known}]: there is no algorithm {known!r}; {suggest(known, ALGORITHMS)}")
    if name is not None and own.get("name") != name:
        table["algorithm"] = {"name": name}
    else:
        name = own.get("name")
    _merge(table, special.get(name, {}) if isinstance(name, str) else {})
    return table


def _make_room(table: Table, keys: list[str], value: Any) -> None:
    """Another kind of split, participation or model does not inherit what it has no name for."""
    section = table.get(keys[0])
    if not isinstance(section, dict) or section.get(keys[-1]) == value:
        return
    match keys:
        case ["split" | "participation" as where, "kind"]:
            chosen = (SPLITS if where == "split" else PARTICIPATION).get(value) if isinstance(value, str) else None
            if chosen is not None:
                known = {field.name for field in dataclasses.fields(chosen)}  # pyright: ignore[reportArgumentType]
                table[where] = {key: kept for key, kept in section.items() if key in known}
        case ["model", "name"]:
            table["model"] = {}
        case ["client", "steps"]:
            section.pop("epochs", None)
        case ["client", "epochs"]:
            section.pop("steps", None)


def _parsed(setting: str) -> tuple[list[str], Any]:
    path, equals, text = setting.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys):
        raise UserError(f"--set takes path=value, such as client.lr=0.05, got {setting!r}")
    try:
        return keys, read_value(text)
    except UserError as refusal:
        raise UserError(f"--set takes path=value: {refusal}") from None


def parse_values(setting: str) -> tuple[list[str], list[Any]]:
    """Of `path=value,value`: the path's keys, and the values, which differ.

    >>> parsed_values("model.hidden=[64, 32], [128]")
    (['model', 'hidden'], [[64, 32], [128]])
    """
    path, equals, text = setting.partition("=")
    keys = [key.strip() for key in path.split(".")]
    if not equals or not all(keys):
        raise UserError(f"--over takes path=value,value, such as client.lr=0.1,0.3, got {setting!r}")
    try:
        values = read_values(text)
    except UserError as refusal:
        raise UserError(
            f"--over takes path=value,value, such as client.lr=0.1,0.3, got {setting!r}: {refusal}"
        ) from None
    texts = [write_value(value) for value in values]
    if twice := next((one for one in texts if texts.count(one) > 1), None):
        raise UserError(f"--over takes values that differ, and {setting!r} has {twice} twice")
    return keys, values


def _merge(table: Table, changes: Mapping[str, Any]) -> None:
    for key, value in changes.items():
        if isinstance(value, Mapping) and isinstance(table.get(key), dict):
            _merge(table[key], value)
        else:
            table[key] = copy.deepcopy(value)
