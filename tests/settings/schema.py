"""The names of all settings of an experiment, from the schema itself.

client.lr                       a setting of a section
model.train                     a setting of any model
model.loss                      a setting of every model
algorithm.fedcm                 a choice that needs only its name
split.dirichlet.concentration   a setting of a choice
client.schedule.cosine.warmup   a setting of a choice that is the value of a section's setting
"""

import dataclasses
import inspect
from typing import Any

from fedcm.algorithms import ALGORITHMS
from fedcm.config.sections import RESERVED_MODEL_KEYS, SECTIONS, Experiment
from fedcm.core.aggregation.robust import MEANS
from fedcm.core.attacks import ATTACKS
from fedcm.core.conditions.availability import AVAILABILITY
from fedcm.core.local.optimizers import OPTIMIZERS
from fedcm.core.participation import PARTICIPATION
from fedcm.core.schedule_kinds import SCHEDULES
from fedcm.core.topology import TOPOLOGIES
from fedcm.data.partition import SPLITS
from fedcm.data.work.amounts import WORK
from fedcm.data.work.stragglers import Stragglers
from fedcm.models import MODELS

CHOICES: dict[str, dict[str, Any]] = {
    "split": dict(SPLITS),
    "participation": dict(PARTICIPATION),
    "topology": dict(TOPOLOGIES),
    "availability": dict(AVAILABILITY),
    "attack": dict(ATTACKS),
    "model": dict(MODELS),
    "algorithm": dict(ALGORITHMS),
}
INNER_CHOICES: dict[str, dict[str, Any]] = {
    "client.schedule": dict(SCHEDULES),
    "client.step_schedule": dict(SCHEDULES),
    "server.schedule": dict(SCHEDULES),
    "client.optimizer": dict(OPTIMIZERS),
    "server.mean": dict(MEANS),
}
CHOSEN_BY = dict.fromkeys(CHOICES, "kind") | {"model": "name", "algorithm": "name"}


def list_settings() -> list[str]:
    names = [name for name in Experiment.model_fields if name not in (*SECTIONS, *CHOICES, "stragglers")]
    names += [f"stragglers.{name}" for name, _ in _fields(Stragglers)]
    for unit in ("epochs", "steps"):
        names += [f"client.{unit}.{kind}.{name}" for kind, own in WORK.items() for name, _ in _fields(own)]
    names += [f"{section}.{field}" for section, kind in SECTIONS.items() for field in kind.model_fields]
    for where, kinds in (CHOICES | INNER_CHOICES).items():
        names += [f"model.{key}" for key in RESERVED_MODEL_KEYS if key != "name"] if where == "model" else []
        for name, kind in kinds.items():
            fields = _fields(kind)
            names += [f"{where}.{name}"] if not any(required for _, required in fields) else []
            names += [f"{where}.{name}.{field}" for field, _ in fields]
    return names


def _fields(kind: Any) -> list[tuple[str, bool]]:
    """Return the names of the fields, and whether they are required."""
    if dataclasses.is_dataclass(kind):
        return [(field.name, field.default is dataclasses.MISSING) for field in dataclasses.fields(kind)]
    parameters = inspect.signature(kind).parameters.values()
    return [(own.name, own.default is own.empty) for own in parameters if own.name not in ("input_shape", "classes")]


def put(table: dict[str, Any], setting: str, value: Any) -> None:
    """Put a setting into an experiment's table, in place; None leaves it out."""
    where, *rest = setting.split(".")
    if ".".join((where, *rest[:1])) in INNER_CHOICES and len(rest) > 1:
        section, (inner, name, *field) = table.setdefault(where, {}), rest
        chosen = "name" if inner == "optimizer" else "kind"
        if section.get(inner, {}).get(chosen) != name:
            section[inner] = {chosen: name}
        section[inner] |= {key: value for key in field if value is not None}
        return
    if where in CHOICES:
        if table.get(where, {}).get(CHOSEN_BY[where]) != rest[0]:
            table[where] = {CHOSEN_BY[where]: rest[0]}
        rest = rest[1:]
        if not rest:
            return
    inner = table.setdefault(where, {}) if rest else table
    key = rest[-1] if rest else where
    inner.pop(key, None)
    if value is not None:
        inner[key] = value
