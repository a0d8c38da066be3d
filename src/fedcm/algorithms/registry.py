"""From the name or import path of an algorithm to its class, and back."""

import dataclasses
from typing import Any

from fedcm.algorithms import ALGORITHMS
from fedcm.core.algorithm import Algorithm, messages
from fedcm.errors import UserError, suggest
from fedcm.system.imports import import_path


def find_algorithm(name: str) -> type[Algorithm[Any, Any, Any, Any]]:
    """Return the class of an algorithm, given a bundled name or `package.module:Class`.

    Raises:
        UserError: there is no such algorithm, or the class does not follow the contract.
    """
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
