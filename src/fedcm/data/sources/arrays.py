"""The user's own arrays: one `.npz` file, or a folder with one `.npz` file per client.

    data.npz        x_train, y_train, and x_test, y_test if there is a test set (x, y are accepted for x_train, y_train)
    clients/        ann.npz, bob.npz, …: x, y of one client each; test.npz: x, y of the test set

Without a test set the `Dataset` has none: no training examples are held out.
"""

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

import numpy as np

from fedcm.data.array_conversion import check_compatible, make_dataset, make_examples
from fedcm.data.dataset import Dataset, Examples
from fedcm.data.sources.npz import read_npz
from fedcm.data.structures.tree import concatenate_rows
from fedcm.errors import UserError
from fedcm.system.storage.mapped_files import is_mapped

_TEST = "test.npz"


def load_npz(path: Path, *, may_map: bool = False) -> Dataset:
    """Load one `.npz` file with a training set and, optionally, a test set.

    Args:
        path: The file.
        may_map: Whether the training features are mapped if they are large and need no conversion. Their numbers may
            then not be aligned, so select examples by index, which copies them.

    Raises:
        UserError: If the file or its arrays cannot be used.
    """
    arrays = read_npz(path, mapped=("x", "x_train") if may_map else ())
    is_short = "x" in arrays and "y" in arrays and "x_train" not in arrays and "y_train" not in arrays
    train = _take_examples(arrays, ("x", "y") if is_short else ("x_train", "y_train"), path)
    has_test = "x_test" in arrays or "y_test" in arrays
    test = _take_examples(arrays, ("x_test", "y_test"), path) if has_test else None
    return make_dataset(path.stem, train, test, mapped=is_mapped(train.features.numpy()))


def load_npz_folder(folder: Path) -> Dataset:
    """Load one client per `.npz` file; the clients are named by the files and sorted by name.

    Raises:
        UserError: If there is no such file, or the arrays of one cannot be used.
    """
    files = sorted(file for file in folder.glob("*.npz") if file.name != _TEST and not file.name.startswith("."))
    if not files:
        raise UserError(
            f"a folder of clients must contain one .npz file per client (keys x, y), got none in {str(folder)!r}"
        )
    clients = [_take_examples(read_npz(file), ("x", "y"), file) for file in files]
    test_file = folder / _TEST
    test = _take_examples(read_npz(test_file), ("x", "y"), test_file) if test_file.exists() else None
    return join_clients(folder.resolve().name, clients, [file.stem for file in files], test)


def join_clients(
    name: str,
    clients: Sequence[Examples],
    names: Sequence[str],
    test: Examples | None,
    validation: Examples | None = None,
) -> Dataset:
    """Concatenate the clients' examples into one dataset with a natural split.

    Raises:
        UserError: If the clients' examples differ in shape or type.
    """
    for client, client_name in zip(clients[1:], names[1:], strict=True):
        check_compatible(clients[0], client, f"{name}: the clients {names[0]}", client_name)
    train = Examples(
        concatenate_rows([client.features for client in clients]),
        concatenate_rows([client.labels for client in clients]),
    )
    owners = np.repeat(np.arange(len(clients)), [client.size for client in clients])
    return make_dataset(name, train, test, validation, owners=owners, client_names=tuple(names))


def _take_examples(arrays: dict[str, np.ndarray], keys: tuple[str, str], path: Path) -> Examples:
    for key in keys:
        if key not in arrays:
            others = [other for other in arrays if other not in keys]
            closest = get_close_matches(key, others, n=1)
            raise UserError(
                f"{str(path)!r} must have the arrays {keys[0]} and {keys[1]}, "
                f"got no {key!r} but {', '.join(arrays) or 'nothing'}"
                + (f"; rename {closest[0]!r} to {key!r}" if closest else "")
            )
    return make_examples(arrays[keys[0]], arrays[keys[1]], f"{str(path)!r} ({', '.join(keys)})", copy=False)
