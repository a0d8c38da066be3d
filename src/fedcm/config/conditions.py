"""Read the conditions of clients from a table, describe them as one, and reject what cannot work."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidatorFunctionWrapHandler
from pydantic_core.core_schema import ValidationInfo

from fedcm.algorithms.registry import get_algorithm_name
from fedcm.config.choices import IN_MEMORY, describe_choice
from fedcm.config.schema import read_choice, read_dataclass
from fedcm.core.algorithm import Algorithm, is_decentralised
from fedcm.core.conditions.availability import AVAILABILITY, Availability, Trace
from fedcm.data.work.amounts import WORK, FileWork, WorkAmount, WorkFunction
from fedcm.data.work.stragglers import Stragglers
from fedcm.errors import UserError

_FILE_KEYS = ("path", "file")  # fields that name a file


def read_work(value: Any, read_number: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
    """Validate `client.steps` or `client.epochs`: a number, a table, a `WorkAmount` or a function."""
    if isinstance(value, Mapping):
        return make_path_absolute(read_choice(WORK, value, "kind", f"client.{info.field_name}"))
    if isinstance(value, WorkAmount) and not isinstance(value, type):
        return make_path_absolute(value)
    if isinstance(value, Callable) and not isinstance(value, type):
        return WorkFunction(value)
    return read_number(value)


def describe_work(work: Any) -> Any:
    """Return the value of `client.steps` or `client.epochs` as TOML has it."""
    if isinstance(work, WorkFunction):
        return {"kind": f"{IN_MEMORY}:{getattr(work.function, '__name__', type(work.function).__name__)}"}
    return work if work is None or isinstance(work, int) else describe_choice(work, WORK)


def read_availability(table: Any) -> Availability | None:
    """Read `[availability]`; None if there is none."""
    return None if table is None else make_path_absolute(read_choice(AVAILABILITY, table, "kind", "availability"))


def read_stragglers(table: Any) -> Stragglers | None:
    """Read `[stragglers]`; None if there is none."""
    if table is None:
        return None
    if not isinstance(table, Mapping):
        raise UserError(f"stragglers must be a table, got {table!r}")
    return make_path_absolute(read_dataclass(Stragglers, table, "stragglers"))


def describe_fields(chosen: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that are not None; those of other objects cannot be known."""
    if not dataclasses.is_dataclass(type(chosen)) or isinstance(chosen, WorkFunction):
        return {}
    return {key: value for key, value in dataclasses.asdict(chosen).items() if value is not None}


def make_path_absolute(chosen: Any) -> Any:
    """Return the choice with the absolute path of its file, so that the run can be resumed from another folder."""
    for key in _FILE_KEYS:
        path = getattr(chosen, key, None)
        if isinstance(path, str) and isinstance(chosen, FileWork | Trace | Stragglers):
            try:
                return dataclasses.replace(chosen, **{key: str(Path(path).expanduser().absolute())})
            except (OSError, RuntimeError, ValueError):  # not a path at all; reading the file reports it
                return chosen
    return chosen


def reject_conditions(
    algorithm: Algorithm[Any, Any, Any, Any], availability: Availability | None, stragglers: Stragglers | None
) -> None:
    """Raise UserError if an algorithm needs all clients in every round, and the conditions keep some away."""
    if not (algorithm.needs_all_clients or is_decentralised(algorithm)):
        return
    for name, given in (("availability", availability), ("stragglers", stragglers)):
        if given is not None:
            raise UserError(
                f"{get_algorithm_name(algorithm)!r} must have every client in every round, so [{name}] must be left out"
            )


def list_condition_files(
    epochs: Any, steps: Any, availability: Availability | None, stragglers: Stragglers | None
) -> dict[str, str]:
    """Return the checksums of the files that the conditions are read from, by the name of the setting."""
    files: dict[str, str] = {}
    for name, work in (("client.epochs", epochs), ("client.steps", steps)):
        if isinstance(work, FileWork):
            files[name] = work.table.sha256
    if isinstance(availability, Trace):
        files["availability"] = availability.table.sha256
    if stragglers is not None and stragglers.file is not None:
        files["stragglers"] = stragglers.table.sha256
    return files
