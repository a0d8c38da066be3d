"""Find the class of an algorithm by its name or import path, and the name of an algorithm."""

import dataclasses
from typing import Any

from fedcm.algorithms import ALGORITHMS
from fedcm.core.algorithm import Algorithm, get_message_types
from fedcm.errors import UserError, suggest
from fedcm.system.imports import import_object


def find_algorithm(name: str) -> type[Algorithm[Any, Any, Any, Any]]:
    """Return the class of an algorithm, by its bundled name or by `package.module:Class`.

    Raises:
        UserError: If there is no such algorithm, or the class does not follow the contract.
    """
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    if ":" not in name:
        raise UserError(f"there is no algorithm {name!r}; {suggest(name, ALGORITHMS)}")
    kind = import_object(name)
    if not (isinstance(kind, type) and issubclass(kind, Algorithm) and dataclasses.is_dataclass(kind)):
        raise UserError(f"the algorithm {name!r} must be a frozen dataclass that derives from fedcm.Algorithm")
    try:
        get_message_types(kind)
    except TypeError as error:
        raise UserError(str(error)) from None
    return kind


def get_algorithm_name(algorithm: Algorithm[Any, Any, Any, Any]) -> str:
    """Return the bundled name of an algorithm, or `package.module:Class`."""
    for name, kind in ALGORITHMS.items():
        if type(algorithm) is kind:
            return name
    return f"{type(algorithm).__module__}:{type(algorithm).__qualname__}"
