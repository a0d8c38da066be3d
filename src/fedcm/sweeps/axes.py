"""Settings that a sweep varies, from `path=value,value` of the command line to what each run has of them.

A run is named and labelled by what it has in the end, not by what was written: `1` and `1.0` are one α, and a setting
that `--set` fixes after all is not said to vary.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, final

from fedcm.config.experiment import Experiment, to_table
from fedcm.config.overrides import Table, parse_values
from fedcm.config.toml_values import write_value
from fedcm.errors import UserError
from fedcm.sweeps.labels import names_setting
from fedcm.sweeps.run_names import swept_part


class SweptValue(NamedTuple):
    """What a run has of a swept setting."""

    path: str
    text: str
    part: str  # of the run's name; none of the seed, which stands there anyway


@final
@dataclass(frozen=True)
class SweptSetting:
    keys: tuple[str, ...]
    values: tuple[Any, ...]

    @property
    def path(self) -> str:
        return ".".join(self.keys)

    def as_table(self, value: Any) -> Table:
        for key in reversed(self.keys):
            value = {key: value}
        return value

    def found_in(self, experiment: Experiment, given: Any) -> SweptValue:
        there: Any = to_table(experiment)
        for key in self.keys:
            there = there.get(key) if isinstance(there, Mapping) else None
        value = _part(there, given)
        if value is None:
            raise UserError(
                f"--over takes a setting that the runs have, and with the other settings they have no {self.path!r}"
            )
        return SweptValue(self.path, write_value(value), "" if self.path == "seed" else swept_part(self.path, value))


def read_swept(over: Iterable[str]) -> list[SweptSetting]:
    """Every setting once, with the values to be tried."""
    found: dict[str, SweptSetting] = {}
    for setting in over:
        keys, values = parse_values(setting)
        swept = SweptSetting(tuple(keys), tuple(values))
        if swept.path in found:
            raise UserError(f"--over takes every setting once, with all its values, and {swept.path!r} comes twice")
        if swept.path == "algorithm.name":
            raise UserError("--over takes settings; algorithms are compared by --algorithms, such as fedavg,fedcm")
        if not names_setting(swept.path):
            raise UserError(
                f"--over takes the path of a setting, such as client.lr, got {swept.path!r}; what is to change "
                "together is a variant of an axis in the file's [grid]"
            )
        found[swept.path] = swept
    return list(found.values())


def reject_equal_runs(experiments: Mapping[str, Experiment]) -> None:
    """Runs of a sweep with other names must be other experiments: one axis may hide what another one changes."""
    names: dict[str, str] = {}
    for name, experiment in experiments.items():
        table = json.dumps({**to_table(experiment), "cell": None}, sort_keys=True, default=str)
        if table in names:
            raise UserError(
                f"the runs of a sweep must differ, and {names[table]!r} and {name!r} are the same experiment; --over "
                "changes what an axis of the file's grid changes too"
            )
        names[table] = name


def _part(there: Any, given: Any) -> Any:
    """Of a table, the keys that were given."""
    if not (isinstance(given, Mapping) and isinstance(there, Mapping)):
        return there
    return {key: _part(there[key], value) for key, value in given.items() if key in there}
