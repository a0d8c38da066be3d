"""Mutations of experiments: values changed, removed, copied, moved or renamed, or lines of the text damaged."""

import copy
import datetime
import math
from collections.abc import Iterator
from random import Random
from typing import Any

import tomli_w

Table = dict[str, Any]
Path = tuple[str | int, ...]

VALUES: list[Any] = [
    *(0, 1, -1, 2, 3, 10**9, 10**9 + 1, 2**63 - 1, 2**63, -(2**63), 10**40),
    *(0.0, -0.0, 0.5, 1.0, 1.5, -1.5, 1e-320, 1e-12, 1e6, 1e308, math.nan, math.inf, -math.inf),
    *(True, False),
    *("", " ", "x", "fedcm", "auto", "0.1", "é\u2028", "a\nb", "nul\0", "../up", "/", "~", "~nobody", "x" * 5000),
    *("a:b", ":", "json:loads", "os:nothing", "no.module:at_all", "a b", "{}", "[bold]", "%s"),
    *([], [1], ["x"], [1, "x"], [[1]], [0], [-1], [1.5], [{}], [True], ["x", "x"], [[[]]], [2**63]),
    *({}, {"x": 1}, {"kind": "iid"}, {"name": "fedcm"}, {"x": {"y": {"z": []}}}, {"": ""}, {"lr": {}}, {"I": {}}),
    *(datetime.datetime(2020, 1, 2, 3, 4, 5), datetime.datetime(1, 1, 1, tzinfo=datetime.UTC)),
    *(datetime.date(2020, 1, 2), datetime.time(1, 2, 3)),
]
LARGE = (10**9, 10**9 + 1)  # a layer of this size is valid, and would use all memory
KEYS = ["x", "", "name", "kind", "lr", "for", "grid", "cell", "a.b", "é", "x" * 300, "seeds", "algorithm", "published"]


def list_paths(value: Any, at: Path = ()) -> Iterator[Path]:
    """Yield the path of every value, table and list inside a table."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield (*at, key)
        yield from list_paths(each, (*at, key))


def read_value(table: Table, at: Path) -> Any:
    value: Any = table
    for key in at:
        value = value[key]
    return value


def list_values(at: Path) -> list[Any]:
    """Return the wrong values to try at a path."""
    return [value for value in VALUES if at[0] != "model" or value not in LARGE]


def replace_value(table: Table, at: Path, value: Any) -> Table:
    table = copy.deepcopy(table)
    read_value(table, at[:-1])[at[-1]] = copy.deepcopy(value)
    return table


def mutate_systematically(table: Table) -> Iterator[tuple[str, Table]]:
    """Yield (description, table) for every wrong value at every path, and for every path removed."""
    for at in list(list_paths(table)):
        for value in list_values(at):
            yield f"{_join_path(at)} = {str(value)[:40]!r}", replace_value(table, at, value)
        yield f"without {_join_path(at)}", _remove_value(table, at)


def mutate(table: Table, generator: Random) -> tuple[str, Table]:
    """Apply one to three random changes; return their description and the new table."""
    descriptions = []
    for _ in range(generator.choice([1, 1, 1, 2, 3])):
        if not (paths := list(list_paths(table))):
            break
        description, table = _mutate_once(table, generator.choice(paths), paths, generator)
        descriptions.append(description)
    return ", ".join(descriptions), table


def _mutate_once(table: Table, at: Path, paths: list[Path], generator: Random) -> tuple[str, Table]:
    current = read_value(table, at)
    match generator.choice(["value", "value", "value", "drop", "rename", "extra", "wrap", "copy", "elsewhere"]):
        case "drop":
            return f"without {_join_path(at)}", _remove_value(table, at)
        case "rename" if isinstance(at[-1], str):
            name = generator.choice([at[-1] + "s", at[-1].upper(), at[-1][:-1], *KEYS])
            without = _remove_value(table, at)
            read_value(without, at[:-1])[name] = current
            return f"{_join_path(at)} as {name[:20]!r}", without
        case "extra":
            inside = at if isinstance(current, dict) else at[:-1] if isinstance(at[-1], str) else ()
            key, value = generator.choice(KEYS), generator.choice(list_values((*inside, "x")))
            changed = copy.deepcopy(table)
            read_value(changed, inside)[key] = value
            return f"{_join_path((*inside, key[:20]))} = {str(value)[:40]!r} too", changed
        case "wrap":
            return f"{_join_path(at)} wrapped", replace_value(
                table, at, generator.choice([[current], [current, current], {"x": current}])
            )
        case "copy":
            other = generator.choice(paths)
            return f"{_join_path(at)} as in {_join_path(other)}", replace_value(table, at, read_value(table, other))
        case "elsewhere":  # a list or table inside itself, or a value in another table
            other = generator.choice(paths)
            inside = read_value(table, other)
            if isinstance(inside, dict):
                return f"{_join_path(at)} inside {_join_path(other)}", replace_value(table, (*other, "x"), current)
    value = generator.choice(list_values(at))
    return f"{_join_path(at)} = {str(value)[:40]!r}", replace_value(table, at, value)


def damage_text(text: str, generator: Random) -> tuple[str, str]:
    """Remove, repeat, swap or cut a line, or change a letter; return the description and the new text."""
    lines = text.splitlines()
    k, other = generator.randrange(len(lines)), generator.randrange(len(lines))
    match generator.choice(["drop", "double", "swap", "cut", "letter"]):
        case "drop":
            del lines[k]
        case "double":
            lines.insert(other, lines[k])
        case "swap":
            lines[k], lines[other] = lines[other], lines[k]
        case "cut":
            lines[k] = lines[k][: generator.randrange(len(lines[k]) + 1)]
        case "letter" if lines[k]:
            at = generator.randrange(len(lines[k]))
            lines[k] = lines[k][:at] + generator.choice("=\".[]{}#'0-_ xé\t") + lines[k][at + 1 :]
    return f"line {k + 1} damaged", "\n".join(lines) + "\n"


def dump_toml(table: Table) -> str | None:
    """Return a table as TOML; None if TOML cannot express it."""
    try:
        return tomli_w.dumps(table)
    except (TypeError, ValueError):
        return None


def dump_toml_value(value: Any) -> str:
    """Return a value as TOML; a table as an inline table."""
    return tomli_w.dumps({"x": [value]}, multiline_strings=False).partition("=")[2].strip()[1:-1].strip().rstrip(",")


def _remove_value(table: Table, at: Path) -> Table:
    table = copy.deepcopy(table)
    del read_value(table, at[:-1])[at[-1]]
    return table


def _join_path(at: Path) -> str:
    return ".".join(str(part) for part in at)
