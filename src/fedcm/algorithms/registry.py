"""From a name, an import path or a TOML table to an algorithm, and back."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from fedcm.algorithms import ALGORITHMS
from fedcm.config.schema import read_dataclass
from fedcm.core.algorithm import Algorithm, messages
from fedcm.errors import UserError, suggest
from fedcm.system.imports import import_path


def read_algorithm(table: Any) -> Algorithm[Any, Any, Any, Any]:
    if not isinstance(table, Mapping) or not isinstance(table.get("name"), str):
        raise UserError(f"algorithm.name must be given: one of {', '.join(ALGORITHMS)}, or 'package.module:Class'")
    name = table["name"]
    kind = algorithm_class(name)
    return read_dataclass(kind, {key: value for key, value in table.items() if key != "name"}, "algorithm", name)


def algorithm_class(name: str) -> type[Algorithm[Any, Any, Any, Any]]:
    """By name or import path."""
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    if ":" not in name:
        raise UserError(f"there is no algorithm {name!r}; {suggest(name, ALGORITHMS)}")
    kind = import_path(name)
    if not (isinstance(kind, type) and issubclass(kind, Algorithm) and dataclasses.is_dataclass(kind)):
        raise UserError(f"the algorithm {name!r} must be a frozen dataclass that derives from fedcm.Algorithm")
    try:
        messages(kind)
    except TypeError as error:
        raise UserError(str(error)) from None
    return kind


def algorithm_name(algorithm: Algorithm[Any, Any, Any, Any]) -> str:
    for name, kind in ALGORITHMS.items():
        if type(algorithm) is kind:
            return name
    return f"{type(algorithm).__module__}:{type(algorithm).__qualname__}"
