"""The names of all settings of an experiment, from the schema itself.

client.lr                       a setting of a section
model.loss                      a setting of every model
algorithm.fedcm                 a choice that needs only its name
split.dirichlet.concentration   a setting of a choice
"""

import dataclasses
import inspect
from typing import Any

from fedcm.algorithms import ALGORITHMS
from fedcm.config.sections import MODEL_SETTINGS, SECTIONS, Experiment
from fedcm.core.participation import PARTICIPATION
from fedcm.core.topology import TOPOLOGIES
from fedcm.data.partition import SPLITS
from fedcm.models import MODELS

CHOICES: dict[str, dict[str, Any]] = {
    "split": dict(SPLITS),
    "participation": dict(PARTICIPATION),
    "topology": dict(TOPOLOGIES),
    "model": dict(MODELS),
    "algorithm": dict(ALGORITHMS),
}
CHOSEN_BY = {"split": "kind", "participation": "kind", "topology": "kind", "model": "name", "algorithm": "name"}


def list_settings() -> list[str]:
    names = [name for name in Experiment.model_fields if name not in (*SECTIONS, *CHOICES)]
    names += [f"{section}.{field}" for section, kind in SECTIONS.items() for field in kind.model_fields]
    names += [f"model.{field}" for field in MODEL_SETTINGS if field != "name"]
    for where, kinds in CHOICES.items():
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
