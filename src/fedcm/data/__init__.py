"""Datasets, their split over clients, and the minibatches that clients draw.

`load_source` and `load_dataset` accept:

    digits, cifar10, cifar100, mnist, fashion-mnist, shakespeare    a dataset by name
    data.npz, clients/                                              the user's arrays: one file, or one file per client
    package.module:function                                         the user's code
"""

import os
from collections.abc import Callable
from pathlib import Path

from fedcm.data.batches import LocalWork
from fedcm.data.dataset import ClientsOnDemand, Dataset, Examples, Normalisation
from fedcm.data.federated import ArrayData, FederatedData
from fedcm.data.on_demand import OnDemandData
from fedcm.data.partition import SPLITS, Split
from fedcm.data.sources import arrays, cifar, digits, mnist, shakespeare
from fedcm.data.user_data import load_user_data
from fedcm.errors import UserError, suggest

__all__ = [
    "SOURCES",
    "SPLITS",
    "ArrayData",
    "ClientsOnDemand",
    "Dataset",
    "Examples",
    "FederatedData",
    "LocalWork",
    "Normalisation",
    "OnDemandData",
    "Split",
    "load_dataset",
    "load_source",
    "resolve_data_folder",
]

SOURCES: dict[str, Callable[[Path], Dataset]] = {
    "digits": digits.load_digits,
    "cifar10": cifar.load_cifar10,
    "cifar100": cifar.load_cifar100,
    "mnist": mnist.load_mnist,
    "fashion-mnist": mnist.load_fashion_mnist,
    "shakespeare": shakespeare.load_shakespeare,
}


def load_dataset(source: str, data_dir: Path | None = None, *, fresh: bool = False) -> Dataset:
    """Load a whole dataset.

    Args:
        source: A name, a path relative to the current folder, or `package.module:function`.
        data_dir: The folder of the named datasets; see `resolve_data_folder` for the default.
        fresh: Whether the items of torch datasets will be read anew in every pass.

    Raises:
        UserError: If there is no such source, or it creates its clients on demand.
    """
    loaded = load_source(source, data_dir, fresh=fresh)
    if isinstance(loaded, ClientsOnDemand):
        raise UserError(f"{source} must be a whole dataset here, but it creates its clients on demand")
    return loaded


def load_source(
    source: str, data_dir: Path | None = None, *, fresh: bool = False, may_map: bool = False
) -> Dataset | ClientsOnDemand:
    """Load a whole dataset, or a population whose clients are created on demand.

    Args:
        source: A name, a path relative to the current folder, or `package.module:function`.
        data_dir: The folder of the named datasets; see `resolve_data_folder` for the default.
        fresh: Whether the items of torch datasets will be read anew in every pass.
        may_map: Whether large training features of an `.npz` file are mapped instead of copied; see `load_npz`.

    Raises:
        UserError: If there is no such source, or its data cannot be used.
    """
    if source in SOURCES:
        return SOURCES[source](resolve_data_folder(data_dir))
    try:
        path = Path(source).expanduser()
        is_folder = path.is_dir()
    except (OSError, RuntimeError, ValueError):  # too long, an unknown ~user, or a character that no path may contain
        path, is_folder = Path(source), False
    if source.endswith(".npz"):
        return arrays.load_npz(path, may_map=may_map)
    if is_folder:
        return arrays.load_npz_folder(path)
    if ":" in source:
        return load_user_data(source, fresh=fresh)
    raise UserError(
        "data must be a known name, an .npz file, a folder with one .npz file per client, or package.module:function, "
        f"got {source!r}; {suggest(source, SOURCES)}"
    )


def resolve_data_folder(data_dir: Path | None = None) -> Path:
    """Return the folder of the named datasets: `data_dir`, else $FEDCM_DATA, else the user's cache folder."""
    if data_dir is not None:
        return data_dir
    if from_environment := os.environ.get("FEDCM_DATA"):
        return Path(from_environment).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "fedcm"
