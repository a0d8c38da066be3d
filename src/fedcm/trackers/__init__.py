"""Logs of runs for other programs: TensorBoard, MLflow, Weights & Biases.

A tracker is imported when it is requested, and only then needs its package. `tracker` reports rounds to trackers.
"""

from collections.abc import Iterable
from importlib import import_module

from fedcm.errors import UserError, suggest
from fedcm.system.formatting import split_names
from fedcm.trackers.tracker import Tracker

TRACKERS = {"tensorboard": "TensorBoard", "mlflow": "MLflow", "wandb": "WeightsAndBiases"}


def load_trackers(words: Iterable[str]) -> list[type[Tracker]]:
    """Return the tracker classes that words or comma-separated lists name, each once.

    Raises:
        UserError: If there is no such tracker, or its package is not installed.
    """
    names = dict.fromkeys(name for word in words for name in split_names(word))
    return [_load_tracker(name) for name in names]


def _load_tracker(name: str) -> type[Tracker]:
    if name not in TRACKERS:
        raise UserError(f"there is no tracker {name!r}; {suggest(name, TRACKERS)}")
    try:
        return getattr(import_module(f"fedcm.trackers.{name}"), TRACKERS[name])
    except ImportError as error:
        missing = error.name.split(".")[0] if error.name else error
        raise UserError(
            f"the tracker {name!r} requires packages that are not installed: {missing} cannot be imported; "
            f"install them with `pip install 'fedcm[{name}]'`"
        ) from error
