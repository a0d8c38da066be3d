"""Read a TOML table as a typed record; an error is one sentence that names the key."""

import dataclasses
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from fedcm.errors import UserError, suggest
from fedcm.system.error_messages import describe_error, describe_os_error, format_location
from fedcm.system.files import find_wrong_kind
from fedcm.system.formatting import format_count

Record = TypeVar("Record")


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """Return the table in a TOML file.

    Args:
        path: The file.
        what: What the file describes, for error messages.

    Raises:
        UserError: If the file cannot be read or is not TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(find_wrong_kind(path) or f"there is no {what} {str(path)!r}") from None
    except IsADirectoryError:
        raise UserError(
            f"{str(path)!r} must be a file, and it is a folder; give the .toml file of the {what}"
        ) from None
    except OSError as error:
        raise UserError(f"the {what} cannot be read: {describe_os_error(error)}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{str(path)!r} cannot be read: {error}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{str(path)!r} is not valid TOML: {error}") from None


class Section(BaseModel):
    """A TOML table with a fixed set of keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def read_section(kind: type[Record], table: Mapping[str, Any], where: str = "") -> Record:
    """Read a table as a `Section`.

    Args:
        kind: The subclass of `Section`.
        table: The table.
        where: The path of the table, for error messages.

    Raises:
        UserError: If a key is unknown, or a value is missing or not allowed.
    """
    if not isinstance(table, Mapping):
        raise UserError(f"{where or 'the experiment'} must be a table, got {table!r}")
    try:
        return kind.model_validate(dict(table))  # pyright: ignore[reportAttributeAccessIssue]
    except ValidationError as error:
        raise UserError(_describe_problem(error, kind, where)) from None


def read_choice(kinds: Mapping[str, type], table: Mapping[str, Any], key: str, where: str) -> Any:
    """Read a table as the dataclass that `table[key]` names; the other keys are its fields.

    Args:
        kinds: The dataclasses, by name.
        table: The table.
        key: The key whose value is the name, such as "kind".
        where: The path of the table, for error messages.

    Raises:
        UserError: If the name is missing or unknown, or a field cannot be read.
    """
    if not isinstance(table, Mapping):
        raise UserError(f"{where} must be a table, got {table!r}")
    name = table.get(key)
    if not isinstance(name, str):
        raise UserError(f"{where}.{key} must be one of {', '.join(kinds)}, got {name!r}")
    if name not in kinds:
        raise UserError(f"there is no {where} {name!r}; {suggest(name, kinds)}")
    return read_dataclass(kinds[name], {k: v for k, v in table.items() if k != key}, where, name)


def read_dataclass(kind: type, table: Mapping[str, Any], where: str, name: str = "") -> Any:
    """Read a table as a frozen dataclass.

    Args:
        kind: The dataclass.
        table: The table.
        where: The path of the table, for error messages.
        name: The name of the choice, for error messages; empty if there is no choice.

    Raises:
        UserError: If a key is unknown, a value is missing, or `__post_init__` raises an error.
    """
    fields = {field.name: field for field in dataclasses.fields(kind)}
    subject = f"{where} {name!r}" if name else where
    for key in table:
        if key not in fields:
            hint = suggest(key, fields) if fields else "it has none"
            raise UserError(f"{subject} has no setting {key!r}; {hint}")
    try:
        hints = get_type_hints(kind)
    except Exception as error:
        raise UserError(f"{subject}: the types of its settings cannot be read: {error}") from None
    values = {key: _read_value(hints[key], value, f"{where}.{key}") for key, value in table.items()}
    for key, field in fields.items():
        if key not in values and field.default is MISSING and field.default_factory is MISSING:
            raise UserError(f"{where}.{key} must be given{f' for {name!r}' if name else ''}")
    try:
        return kind(**values)
    except Exception as error:  # from the user's own `__post_init__`, or because a method is missing
        message = f"{error}{format_location(error)}" if isinstance(error, ValueError) else describe_error(error)
        raise UserError(f"{subject}: {message}") from error


def _read_value(hint: Any, value: Any, where: str) -> Any:
    try:
        value = TypeAdapter(hint).validate_python(value, strict=hint in (int, float, bool, str))
    except ValidationError as error:
        raise UserError(_describe_problem(error, hint, where)) from None
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{where} must be finite, got {value}")
    return value


def _describe_problem(error: ValidationError, kind: Any, where: str) -> str:
    problem = error.errors()[0]
    path = ".".join(str(part) for part in ([where] if where else []) + list(problem["loc"]))
    match problem["type"]:
        case "extra_forbidden":
            *parents, key = problem["loc"]
            return f"there is no setting {path!r}; {suggest(str(key), _list_keys(kind, parents))}"
        case "missing":
            return f"{path} must be given"
        case "too_short":
            least = format_count(problem.get("ctx", {}).get("min_length", 1), "entry", "entries")
            return f"{path} must have at least {least}, got {_shorten(problem['input'])}; give one or leave it out"
        case "value_error":
            reason = problem.get("ctx", {}).get("error")
            return str(reason) if isinstance(reason, UserError) else f"{path}: {reason}"  # a UserError names the path
        case _:
            must = re.sub(r"^\w+ should", "must", problem["msg"])
            if problem["loc"][-1:] == ("str",):  # pydantic's name of one of the types that an entry of a list may have
                path, must = path.removesuffix(".str"), "must be a text or a table"
            return f"{path} {must}, got {_shorten(problem['input'])}"


def _shorten(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:  # an integer too long to print
        return "a number of thousands of digits"
    return text if len(text) <= 80 else f"{text[:80]}…"


def _list_keys(kind: Any, path: Sequence[int | str]) -> list[str]:
    for part in path:
        fields = getattr(kind, "model_fields", {})
        kind = fields[part].annotation if part in fields else None
    fields = getattr(kind, "model_fields", {})
    return [field.alias or name for name, field in fields.items()]
