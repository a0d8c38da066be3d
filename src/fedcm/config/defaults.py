"""The defaults of settings that a run may be too old to have in its files.

They are repeated here because the schema of experiments needs torch, which a report about digests does not. A setting
that is new in the schema has a default that changes no result, so an older run was made with that default.
"""

from collections.abc import Mapping
from typing import Any

_DEFAULTS: dict[str, dict[str, Any]] = {
    "client": {"batch_size": 50, "lr": 0.1, "lr_decay": 1.0, "weight_decay": 0.0, "weight_decay_at": "loss"},
    "server": {"lr": 1.0, "weights": "clients", "mean": "plain"},
}


def fill_in_defaults(experiment: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table of an experiment, with the defaults of settings that its tables do not have.

    >>> fill_in_defaults({"rounds": 3, "server": {"lr": 0.1}})
    {'rounds': 3, 'server': {'lr': 0.1, 'weights': 'clients', 'mean': 'plain'}}
    """
    return {
        key: {**table, **{name: value for name, value in _DEFAULTS.get(key, {}).items() if name not in table}}
        if isinstance(table, dict)
        else table
        for key, table in experiment.items()
    }
