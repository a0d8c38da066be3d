"""Metrics as arguments: names, tables with options, and functions that are Python objects."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedcm.api.arguments import to_python
from fedcm.config.choices import IN_MEMORY
from fedcm.core.scoring.whole import MetricFunction
from fedcm.errors import UserError
from fedcm.system.formatting import describe_value


def read_metrics(value: Any) -> tuple[list[str | dict[str, Any]] | None, dict[str, MetricFunction]]:
    """Return the setting `evaluation.metrics`, and the functions that it names.

    A function is written as in-memory:NAME, so that the run's experiment.toml shows it.

    Raises:
        UserError: If the value is not a list of names, tables and functions.
    """
    if value is None:
        return None, {}
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise UserError(f"metrics must be a list such as ['accuracy', 'f1'], got {describe_value(value)}")
    entries: list[str | dict[str, Any]] = []
    functions: dict[str, MetricFunction] = {}
    for given in value:
        if isinstance(given, str):
            entries.append(given)
            continue
        table = dict(given) if isinstance(given, Mapping) else {"name": given}
        function = table.get("name")
        if callable(function):
            own = getattr(function, "__name__", type(function).__name__)
            table["name"] = f"{IN_MEMORY}:{own if own.isidentifier() else table.get('label', own)}"
            if functions.setdefault(table["name"], function) is not function:
                raise UserError(f"every metric must have its own name, and two functions are called {own!r}")
        elif not isinstance(function, str):
            raise UserError(f"a metric must be a name, a table with a name, or a function, got {describe_value(given)}")
        entries.append(table["name"] if set(table) == {"name"} else to_python(table))
    return entries, functions
