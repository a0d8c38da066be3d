"""Experiments made wrong: places of a table changed, dropped, doubled, moved or renamed, or the text cut."""

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
LARGE = (10**9, 10**9 + 1)  # a layer of so many units may be had, and would take all memory
KEYS = ["x", "", "name", "kind", "lr", "for", "grid", "cell", "a.b", "é", "x" * 300, "seeds", "algorithm", "published"]


def places(value: Any, at: Path = ()) -> Iterator[Path]:
    """Every place in a table, tables and lists themselves included, the whole excluded."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield (*at, key)
        yield from places(each, (*at, key))


def value_at(table: Table, at: Path) -> Any:
    value: Any = table
    for key in at:
        value = value[key]
    return value


def values_for(at: Path) -> list[Any]:
    return [value for value in VALUES if at[0] != "model" or value not in LARGE]


def replaced(table: Table, at: Path, value: Any) -> Table:
    table = copy.deepcopy(table)
    value_at(table, at[:-1])[at[-1]] = copy.deepcopy(value)
    return table


def systematic(table: Table) -> Iterator[tuple[str, Table]]:
    """Every value at every place, and every place dropped."""
    for at in list(places(table)):
        for value in values_for(at):
            yield f"{_dotted(at)} = {str(value)[:40]!r}", replaced(table, at, value)
        yield f"without {_dotted(at)}", _dropped(table, at)


def mutated(table: Table, draw: Random) -> tuple[str, Table]:
    """One change, or two or three where chance has it."""
    said = []
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        if not (everywhere := list(places(table))):
            break
        what, table = _once(table, draw.choice(everywhere), everywhere, draw)
        said.append(what)
    return ", ".join(said), table


def _once(table: Table, at: Path, everywhere: list[Path], draw: Random) -> tuple[str, Table]:
    here = value_at(table, at)
    match draw.choice(["value", "value", "value", "drop", "rename", "extra", "wrap", "copy", "elsewhere"]):
        case "drop":
            return f"without {_dotted(at)}", _dropped(table, at)
        case "rename" if isinstance(at[-1], str):
            name = draw.choice([at[-1] + "s", at[-1].upper(), at[-1][:-1], *KEYS])
            without = _dropped(table, at)
            value_at(without, at[:-1])[name] = here
            return f"{_dotted(at)} as {name[:20]!r}", without
        case "extra":
            inside = at if isinstance(here, dict) else at[:-1] if isinstance(at[-1], str) else ()
            key, value = draw.choice(KEYS), draw.choice(values_for((*inside, "x")))
            changed = copy.deepcopy(table)
            value_at(changed, inside)[key] = value
            return f"{_dotted((*inside, key[:20]))} = {str(value)[:40]!r} too", changed
        case "wrap":
            return f"{_dotted(at)} wrapped", replaced(table, at, draw.choice([[here], [here, here], {"x": here}]))
        case "copy":
            other = draw.choice(everywhere)
            return f"{_dotted(at)} as in {_dotted(other)}", replaced(table, at, value_at(table, other))
        case "elsewhere":  # a list or table inside itself, or a value among others
            other = draw.choice(everywhere)
            inside = value_at(table, other)
            if isinstance(inside, dict):
                return f"{_dotted(at)} inside {_dotted(other)}", replaced(table, (*other, "x"), here)
    value = draw.choice(values_for(at))
    return f"{_dotted(at)} = {str(value)[:40]!r}", replaced(table, at, value)


def garbled(text: str, draw: Random) -> tuple[str, str]:
    """The file's text, with a line dropped, doubled, swapped or cut, or a letter changed."""
    lines = text.splitlines()
    k, other = draw.randrange(len(lines)), draw.randrange(len(lines))
    match draw.choice(["drop", "double", "swap", "cut", "letter"]):
        case "drop":
            del lines[k]
        case "double":
            lines.insert(other, lines[k])
        case "swap":
            lines[k], lines[other] = lines[other], lines[k]
        case "cut":
            lines[k] = lines[k][: draw.randrange(len(lines[k]) + 1)]
        case "letter" if lines[k]:
            at = draw.randrange(len(lines[k]))
            lines[k] = lines[k][:at] + draw.choice("=\".[]{}#'0-_ xé\t") + lines[k][at + 1 :]
    return f"line {k + 1} garbled", "\n".join(lines) + "\n"


def text_of(table: Table) -> str | None:
    """As TOML, where TOML can say it."""
    try:
        return tomli_w.dumps(table)
    except (TypeError, ValueError):
        return None


def toml_text(value: Any) -> str:
    """A value as TOML; a table inline."""
    return tomli_w.dumps({"x": [value]}, multiline_strings=False).partition("=")[2].strip()[1:-1].strip().rstrip(",")


def _dropped(table: Table, at: Path) -> Table:
    table = copy.deepcopy(table)
    del value_at(table, at[:-1])[at[-1]]
    return table


def _dotted(at: Path) -> str:
    return ".".join(str(part) for part in at)
