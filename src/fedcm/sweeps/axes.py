"""The settings that a sweep varies, from the text `path=value,value` to the value in each run.

A run is named by the value that it has in the end, not by the text: `1` and `1.0` are the same α, and a setting that
an override fixes does not vary.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, final

from fedcm.config.experiment import to_table
from fedcm.config.overrides import Table, parse_values
from fedcm.config.sections import Experiment
from fedcm.config.toml_values import write_value
from fedcm.errors import UserError
from fedcm.sweeps.labels import is_setting
from fedcm.sweeps.run_names import make_setting_part


class SweptValue(NamedTuple):
    """The value of a swept setting in one run."""

    path: str
    text: str
    name_part: str  # part of the run's name; empty for the seed, which is in the name anyway


@final
@dataclass(frozen=True)
class SweptSetting:
    """A setting and the values to try."""

    keys: tuple[str, ...]
    values: tuple[Any, ...]

    @property
    def path(self) -> str:
        """The setting's path, such as `client.lr`."""
        return ".".join(self.keys)

    def as_table(self, value: Any) -> Table:
        """Return the setting as a table that can be merged into an experiment's."""
        for key in reversed(self.keys):
            value = {key: value}
        return value

    def read_from(self, experiment: Experiment, wanted: Any) -> SweptValue:
        """Return the value that an experiment has; of a table, only the keys of `wanted`."""
        actual: Any = to_table(experiment)
        for key in self.keys:
            actual = actual.get(key) if isinstance(actual, Mapping) else None
        value = _select(actual, wanted)
        if value is None:
            raise UserError(
                f"a setting to sweep must exist, but with their other settings the runs have no {self.path!r}"
            )
        return SweptValue(
            self.path, write_value(value), "" if self.path == "seed" else make_setting_part(self.path, value)
        )


def parse_swept_settings(over: Iterable[str]) -> list[SweptSetting]:
    """Parse the settings to sweep, each as `path=value,value`.

    Raises:
        UserError: If a text has another form, or two name the same setting.
    """
    read: dict[str, SweptSetting] = {}
    for setting in over:
        keys, values = parse_values(setting)
        swept = SweptSetting(tuple(keys), tuple(values))
        if swept.path in read:
            raise UserError(
                f"a setting to sweep must be given once, with all its values, but {swept.path!r} is given twice"
            )
        if swept.path == "algorithm.name":
            raise UserError(
                "algorithm.name cannot be swept; list the algorithms to compare in `algorithms`, such as fedavg,fedcm"
            )
        if not is_setting(swept.path):
            raise UserError(
                f"a setting to sweep must be a path, such as client.lr, got {swept.path!r}; settings that change "
                "together are a variant of an axis in the file's [grid]"
            )
        read[swept.path] = swept
    return list(read.values())


def reject_equal_runs(experiments: Mapping[str, Experiment]) -> None:
    """Raise a UserError if two runs have different names and the same experiment: one axis overrides another."""
    names: dict[str, str] = {}
    for name, experiment in experiments.items():
        table = json.dumps({**to_table(experiment), "cell": None}, sort_keys=True, default=str)
        if table in names:
            raise UserError(
                f"the runs of a sweep must differ, but {names[table]!r} and {name!r} are the same experiment; a "
                "swept setting changes what an axis of the file's grid changes too"
            )
        names[table] = name


def _select(actual: Any, wanted: Any) -> Any:
    """Return the keys of a table that `wanted` has too."""
    if not (isinstance(wanted, Mapping) and isinstance(actual, Mapping)):
        return actual
    return {key: _select(actual[key], value) for key, value in wanted.items() if key in actual}
