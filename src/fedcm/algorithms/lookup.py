"""From a name, an import path or a TOML table to an algorithm, and back."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from fedcm.algorithm import Algorithm, messages
from fedcm.algorithms import ALGORITHMS
from fedcm.imports import import_path
from fedcm.refusal import Refused, nearest
from fedcm.settings import read_dataclass


def read_algorithm(table: Any) -> Algorithm[Any, Any, Any, Any]:
    if not isinstance(table, Mapping) or not isinstance(table.get("name"), str):
        raise Refused(f"algorithm.name must be given: one of {', '.join(ALGORITHMS)}, or 'package.module:Class'")
    name = table["name"]
    kind = algorithm_class(name)
    return read_dataclass(kind, {key: value for key, value in table.items() if key != "name"}, "algorithm", name)


def algorithm_class(name: str) -> type[Algorithm[Any, Any, Any, Any]]:
    """By name or import path."""
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    if ":" not in name:
        raise Refused(f"there is no algorithm {name!r}; {nearest(name, ALGORITHMS)}")
    kind = import_path(name)
    if not (isinstance(kind, type) and issubclass(kind, Algorithm) and dataclasses.is_dataclass(kind)):
        raise Refused(f"the algorithm {name!r} must be a frozen dataclass that derives from fedcm.Algorithm")
    try:
        messages(kind)
    except TypeError as error:
        raise Refused(str(error)) from None
    return kind


def algorithm_name(algorithm: Algorithm[Any, Any, Any, Any]) -> str:
    for name, kind in ALGORITHMS.items():
        if type(algorithm) is kind:
            return name
    return f"{type(algorithm).__module__}:{type(algorithm).__qualname__}"
