"""Where data come from: a table of contents.

digits, cifar10, cifar100, mnist, fashion-mnist     by name
data.npz, clients/                                  the user's arrays
package.module:function                             the user's code
"""

import os
from collections.abc import Callable
from pathlib import Path

from fedcm.data import imported
from fedcm.data.dataset import ClientsOnDemand, Dataset, Examples, Normalisation
from fedcm.data.sources import arrays, cifar, digits, mnist
from fedcm.errors import UserError, suggest

__all__ = ["SOURCES", "ClientsOnDemand", "Dataset", "Examples", "Normalisation", "data_folder", "find", "load"]

SOURCES: dict[str, Callable[[Path], Dataset]] = {
    "digits": digits.load,
    "cifar10": cifar.load_cifar10,
    "cifar100": cifar.load_cifar100,
    "mnist": mnist.load_mnist,
    "fashion-mnist": mnist.load_fashion_mnist,
}


def load(source: str, data_dir: Path | None = None) -> Dataset:
    """The data that `source` names, whole; a path is relative to the current folder."""
    found = find(source, data_dir)
    if isinstance(found, ClientsOnDemand):
        raise UserError(f"{source} must give data as a whole here, and its clients are made one at a time, on demand")
    return found


def find(source: str, data_dir: Path | None = None) -> Dataset | ClientsOnDemand:
    """The data that `source` names, whole or as clients on demand."""
    if source in SOURCES:
        return SOURCES[source](data_folder(data_dir))
    try:
        path = Path(source).expanduser()
        folder = path.is_dir()
    except (OSError, RuntimeError, ValueError):  # too long, ~somebody who is not there, a letter that no path has
        path, folder = Path(source), False
    if source.endswith(".npz"):
        return arrays.load_file(path)
    if folder:
        return arrays.load_folder(path)
    if ":" in source:
        return imported.load(source)
    raise UserError(
        "data must be a known name, an .npz, a folder with one .npz a client, or package.module:function, "
        f"got {source!r}; {suggest(source, SOURCES)}"
    )


def data_folder(given: Path | None = None) -> Path:
    """Where the named datasets lie: as given, else $FEDCM_DATA, else the user's cache."""
    if given is not None:
        return given
    if set_folder := os.environ.get("FEDCM_DATA"):
        return Path(set_folder).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "fedcm"
