"""Check and convert the arguments of the public functions. A mistake is reported in one sentence."""

from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from fedcm.config.toml_values import write_value
from fedcm.errors import UserError
from fedcm.system.formatting import describe_value

AnyPath = str | PathLike[str]
Overrides = Mapping[str, Any] | Iterable[str]


def to_count(name: str, value: Any, *, least: int = 1) -> int:
    """Return an argument as an int.

    Raises:
        UserError: If it is not a whole number of at least `least`.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise UserError(f"{name} must be a whole number, at least {least}, got {value!r}")
    return int(value)


def to_path(name: str, value: Any) -> Path:
    """Return an argument as a path.

    Raises:
        UserError: If it is neither a string nor a path.
    """
    if not isinstance(value, str | PathLike):
        raise UserError(f"{name} must be a path, as a string or a pathlib.Path, got {describe_value(value)}")
    path = value.__fspath__() if isinstance(value, PathLike) else value
    if not isinstance(path, str):
        raise UserError(f"{name} must be a path of text, got a path of bytes")
    return Path(path)


def to_optional_path(name: str, value: Any) -> Path | None:
    """Return an argument as a path, or None if it is None.

    Raises:
        UserError: If it is neither None nor a string nor a path.
    """
    return None if value is None else to_path(name, value)


def to_words(name: str, value: Any) -> list[str]:
    """Return an argument as a list of strings; one string becomes a list of one.

    Raises:
        UserError: If it is neither a string nor a list of strings.
    """
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, Sequence) or not all(isinstance(word, str) for word in words):
        raise UserError(f"{name} must be a string or a list of strings, got {value!r}")
    return list(words)


def to_python(value: Any) -> Any:
    """Return a number of numpy as Python's own, also inside lists and dicts; other values are returned unchanged.

    >>> to_python(np.int64(3)), to_python([np.float32(0.5)]), to_python("fedcm")
    (3, [0.5], 'fedcm')
    """
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        return type(value)(map(to_python, value))
    if type(value) is dict:
        return {key: to_python(item) for key, item in value.items()}
    return value


def format_overrides(overrides: Overrides) -> list[str]:
    """Return overrides as `path=value` strings.

    Raises:
        UserError: If they are neither a dict nor a list of strings.

    >>> format_overrides({"client.lr": 0.05, "model.hidden": [64, 32]})
    ['client.lr=0.05', 'model.hidden=[64, 32]']
    """
    if isinstance(overrides, Mapping):
        return [f"{path}={write_value(to_python(value))}" for path, value in overrides.items()]
    if isinstance(overrides, str):
        raise UserError(
            f"overrides must be a dict or a list, got the string {overrides!r}; write [{overrides!r}], for example"
        )
    listed: list[str] = list(overrides) if isinstance(overrides, Iterable) else []
    if not isinstance(overrides, Iterable) or not all(isinstance(setting, str) for setting in listed):
        raise UserError(f"overrides must be a dict, or a list of strings such as 'client.lr=0.05', got {overrides!r}")
    return listed
