"""The trackers by name. One is imported when it is asked for, and only then needs its package."""

from collections.abc import Iterable
from importlib import import_module

from fedcm.errors import UserError, suggest
from fedcm.trackers.tracker import Tracker

TRACKERS = {"tensorboard": "TensorBoard", "mlflow": "MLflow", "wandb": "WeightsAndBiases"}


def load_trackers(words: Iterable[str]) -> list[type[Tracker]]:
    """The kinds of trackers that words or comma lists name, each once; refused where a package is not installed."""
    names = [name.strip() for word in words for name in word.split(",") if name.strip()]
    return [_kind(name) for name in dict.fromkeys(names)]


def _kind(name: str) -> type[Tracker]:
    if name not in TRACKERS:
        raise UserError(f"there is no tracker {name!r}; {suggest(name, TRACKERS)}")
    try:
        return getattr(import_module(f"fedcm.trackers.{name}"), TRACKERS[name])
    except ImportError as error:
        missing = error.name.split(".")[0] if error.name else error
        raise UserError(
            f"--track {name} must have its packages installed, and {missing} cannot be imported; "
            f"install them with `pip install 'fedcm[{name}]'`"
        ) from error
