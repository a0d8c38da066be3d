"""Settings whose value is a table with a choice in it, such as `client.schedule = {kind = "cosine", warmup = 5}`."""

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, cast

from pydantic import BeforeValidator, PlainSerializer

from fedcm.config.schema import read_choice
from fedcm.core.aggregation import PLAIN_MEAN, PlainMean
from fedcm.core.aggregation.robust import MEANS, RobustRule
from fedcm.core.local.optimizers import OPTIMIZERS, LocalOptimizer
from fedcm.core.schedule_kinds import SCHEDULES, FactorFunction, FunctionSchedule, RateSchedule
from fedcm.errors import UserError
from fedcm.system.formatting import describe_value

IN_MEMORY = "in-memory"  # names Python objects, which no file describes


def describe_choice(chosen: Any, kinds: Mapping[str, type], key: str = "kind") -> dict[str, Any]:
    """Return the table of a chosen dataclass; fields that are None or an empty list are left out.

    An object that no file can describe, such as a user's own participation, is described by the name of its class.
    """
    name = next((name for name, kind in kinds.items() if kind is type(chosen)), None)
    own = dataclasses.fields(chosen) if dataclasses.is_dataclass(chosen) else ()
    fields = {field.name: getattr(chosen, field.name) for field in own}
    lists = {field: list(value) if isinstance(value, tuple) else value for field, value in fields.items()}
    given = {field: value for field, value in lists.items() if value is not None and value != []}
    return {key: name or f"{IN_MEMORY}:{type(chosen).__name__}", **given}


def read_schedule(value: Any, where: str) -> RateSchedule | None:
    """Return the schedule that a table, a schedule or a Python function describes.

    Args:
        value: The value of the setting.
        where: The path of the setting, for error messages.

    Raises:
        UserError: If it describes none.
    """
    if value is None or isinstance(value, RateSchedule):
        return value
    if callable(value) and not isinstance(value, type):
        return FunctionSchedule(cast(FactorFunction, value))
    if not isinstance(value, Mapping):
        raise UserError(
            f'{where} must be a table such as {{kind = "cosine"}}, or in Python a schedule such as '
            f"fedcm.Cosine() or a function, got {describe_value(value)}"
        )
    if str(value.get("kind")).startswith(f"{IN_MEMORY}:"):
        raise UserError(
            f"{where} is a Python function of the program that made this experiment; run or resume it there with "
            "fedcm.run or fedcm.resume"
        )
    return read_choice(SCHEDULES, value, "kind", where)


def describe_schedule(schedule: RateSchedule | None) -> dict[str, Any] | None:
    """Return the table of a schedule. A Python function is described by its name."""
    if schedule is None:
        return None
    table = describe_choice(schedule, SCHEDULES)
    if isinstance(schedule, FunctionSchedule) and not isinstance(schedule.function, str):
        del table["function"]
        table["kind"] = f"{IN_MEMORY}:{schedule.name}"
    return table


def read_optimizer(value: Any) -> LocalOptimizer | None:
    """Return the optimiser that a table or an optimiser describes.

    Raises:
        UserError: If it describes none.
    """
    if value is None or isinstance(value, LocalOptimizer):
        return value
    if not isinstance(value, Mapping):
        raise UserError(
            'client.optimizer must be a table such as {name = "adam"}, or in Python an optimiser such as fedcm.Adam(), '
            f"got {describe_value(value)}"
        )
    return read_choice(OPTIMIZERS, value, "name", "client.optimizer")


def describe_optimizer(optimizer: LocalOptimizer | None) -> dict[str, Any] | None:
    """Return the table of an optimiser."""
    return None if optimizer is None else describe_choice(optimizer, OPTIMIZERS, "name")


def read_mean(value: Any) -> RobustRule | PlainMean:
    """Return the mean that a name, a table or a mean describes.

    Raises:
        UserError: If it describes none.
    """
    if value is None or value == "plain":
        return PLAIN_MEAN
    if isinstance(value, RobustRule | PlainMean):
        return value
    if isinstance(value, str):
        value = {"kind": value}
    if not isinstance(value, Mapping):
        raise UserError(
            'server.mean must be a name such as "median", a table such as {kind = "trimmed", share = 0.2}, or in '
            f"Python a mean such as fedcm.Trimmed(0.2), got {value!r}"
        )
    return read_choice(MEANS, value, "kind", "server.mean")


def describe_mean(mean: RobustRule | PlainMean) -> Any:
    """Return the name of the plain mean, or the table of a robust one."""
    return "plain" if isinstance(mean, PlainMean) else describe_choice(mean, MEANS)


ServerMean = Annotated[Any, BeforeValidator(read_mean), PlainSerializer(describe_mean)]
ClientOptimizer = Annotated[Any, BeforeValidator(read_optimizer), PlainSerializer(describe_optimizer)]
ClientSchedule = Annotated[
    Any, BeforeValidator(partial(read_schedule, where="client.schedule")), PlainSerializer(describe_schedule)
]
StepSchedule = Annotated[
    Any, BeforeValidator(partial(read_schedule, where="client.step_schedule")), PlainSerializer(describe_schedule)
]
ServerSchedule = Annotated[
    Any, BeforeValidator(partial(read_schedule, where="server.schedule")), PlainSerializer(describe_schedule)
]
