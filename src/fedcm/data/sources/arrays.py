"""A user's own arrays: one `.npz`, or a folder with one `.npz` a client.

    data.npz        x_train, y_train and, where there is a test set, x_test, y_test  (x, y for x_train, y_train will do)
    clients/        ann.npz, bob.npz, …: x, y of one client each; test.npz: x, y of the test set

Without a test set the `Dataset` has none: nothing is held out behind the user's back.
"""

import zipfile
import zlib
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

import numpy as np
import torch

from fedcm.data.dataset import Dataset, Examples
from fedcm.data.examples import make_dataset, make_examples, same_kind
from fedcm.errors import UserError

_TEST = "test.npz"


def load_file(path: Path) -> Dataset:
    """One `.npz` with the training set and perhaps a test set."""
    given = _read(path)
    short = "x" in given and "y" in given and "x_train" not in given and "y_train" not in given
    train = _pair(given, ("x", "y") if short else ("x_train", "y_train"), path)
    has_test = "x_test" in given or "y_test" in given
    test = _pair(given, ("x_test", "y_test"), path) if has_test else None
    return make_dataset(path.stem, train, test)


def load_folder(folder: Path) -> Dataset:
    """One client a file, named by the file's stem and numbered in the order of the names."""
    files = sorted(file for file in folder.glob("*.npz") if file.name != _TEST and not file.name.startswith("."))
    if not files:
        raise UserError(f"a folder of clients must hold one .npz a client (keys x, y), got none in {str(folder)!r}")
    clients = [_pair(_read(file), ("x", "y"), file) for file in files]
    test_file = folder / _TEST
    test = _pair(_read(test_file), ("x", "y"), test_file) if test_file.exists() else None
    return join_clients(folder.resolve().name, clients, [file.stem for file in files], test)


def join_clients(name: str, clients: Sequence[Examples], names: Sequence[str], test: Examples | None) -> Dataset:
    """The clients' examples one after the other, and whose each is."""
    for client, client_name in zip(clients[1:], names[1:], strict=True):
        same_kind(clients[0], client, f"{name}: the clients {names[0]}", client_name)
    train = Examples(
        torch.cat([client.features for client in clients]),
        torch.cat([client.labels for client in clients]),
    )
    owners = np.repeat(np.arange(len(clients)), [client.size for client in clients])
    return make_dataset(name, train, test, owners=owners, client_names=tuple(names))


def _pair(given: dict[str, np.ndarray], keys: tuple[str, str], path: Path) -> Examples:
    for key in keys:
        if key not in given:
            others = [other for other in given if other not in keys]
            near = get_close_matches(key, others, n=1)
            raise UserError(
                f"{str(path)!r} must have the arrays {keys[0]} and {keys[1]}, "
                f"got no {key!r} but {', '.join(given) or 'nothing'}"
                + (f"; rename {near[0]!r} to {key!r}" if near else "")
            )
    return make_examples(given[keys[0]], given[keys[1]], f"{str(path)!r} ({', '.join(keys)})", copy=False)


def _read(path: Path) -> dict[str, np.ndarray]:
    if not path.is_file():
        raise UserError(f"there must be an .npz file at {str(path.absolute())!r}, got nothing there")
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            raise UserError(
                f"{str(path)!r} must be an .npz with named arrays, got a single array; write it with numpy.savez"
            )
        with loaded:
            return {key: _member(loaded, key, path) for key in loaded.files}
    except (OSError, EOFError, MemoryError, RuntimeError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(
            f"{str(path)!r} cannot be read as an .npz; write it with numpy.savez ({_first_line(error)})"
        ) from error


def _member(archive: np.lib.npyio.NpzFile, key: str, path: Path) -> np.ndarray:
    try:
        array = archive[key]
    except ValueError as error:
        if "allow_pickle" in str(error):
            raise UserError(
                f"{str(path)!r}: {key!r} must be an array of numbers, got Python objects, which are never loaded "
                "because loading them can run code"
            ) from error
        raise
    if not isinstance(array, np.ndarray):
        raise UserError(f"{str(path)!r} must hold arrays only, got the file {key!r}")
    return array


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
