"""Check the fields of frozen dataclasses whose constructors users call, and convert numbers of NumPy."""

import math
from numbers import Integral, Real
from os import PathLike
from typing import Any, TypeGuard

GREATEST_COUNT = 10**9


def is_count(value: Any, least: int) -> TypeGuard[int]:
    """Return whether a value is a whole number from `least` to 10⁹."""
    return isinstance(value, Integral) and not isinstance(value, bool) and least <= int(value) <= GREATEST_COUNT


def convert_counts(record: Any, *, optional: bool = False, **least: int) -> None:
    """Make fields Python ints.

    Args:
        record: The dataclass; it is changed in place.
        optional: Whether the fields may be None.
        **least: The smallest number of each field.

    Raises:
        ValueError: If a field is not a whole number in its range.
    """
    for name, smallest in least.items():
        value: Any = getattr(record, name)
        if value is None and optional:
            continue
        if not is_count(value, smallest):
            raise ValueError(f"{name} must be a whole number from {smallest} to 10⁹, got {value!r}")
        object.__setattr__(record, name, int(value))


def convert_numbers(record: Any, *names: str) -> None:
    """Make fields Python floats.

    Raises:
        ValueError: If a field is not a finite number.
    """
    for name in names:
        value: Any = getattr(record, name)
        if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
            raise ValueError(f"{name} must be a finite number, got {value!r}")
        object.__setattr__(record, name, float(value))


def convert_paths(record: Any, *names: str, optional: bool = False) -> None:
    """Make fields that name files strings.

    Raises:
        ValueError: If a field is not a path.
    """
    for name in names:
        value: Any = getattr(record, name)
        if value is None and optional:
            continue
        text = value.__fspath__() if isinstance(value, PathLike) else value
        if not isinstance(text, str):
            raise ValueError(f"{name} must be the path of a file, got {value!r}")
        object.__setattr__(record, name, text)
