"""Data from the user's own code: `package.module:function`, called without arguments.

The function returns one of:

    a Dataset                          used unchanged
    (train, test)                      each a torch dataset of (x, y), or a pair (features, labels)
    [client, client, …]                a natural split: each client a torch dataset or a pair
    ([client, client, …], test)        the same with a test set
    a ClientsOnDemand                  clients whose data are created when they are needed

A single torch dataset or pair is a training set without a test set. Each example is read once, so a random transform
inside a torch dataset is drawn once; fedcm warns about it.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import TensorDataset

from fedcm.data.array_conversion import make_dataset, make_examples
from fedcm.data.dataset import ClientsOnDemand, Dataset, Examples
from fedcm.data.randomness_check import ReadItem, warn_if_random
from fedcm.data.sources.arrays import join_clients
from fedcm.errors import UserError
from fedcm.system.error_messages import describe_error
from fedcm.system.imports import import_object


def load_user_data(path: str) -> Dataset | ClientsOnDemand:
    """Call the function that `package.module:function` names, and convert what it returns.

    Raises:
        UserError: If the function cannot be imported, fails, or returns something else.
    """
    function = import_object(path)
    if not callable(function):
        raise UserError(f"{path} must be a function without arguments that returns data, got {type(function).__name__}")
    try:
        value = function()
        return value if isinstance(value, ClientsOnDemand) else convert_to_dataset(value, name=path)
    except (Exception, SystemExit) as error:  # the user's code can raise anything
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path}() must return data, got {describe_error(error)}") from error


def convert_to_dataset(value: Any, *, name: str = "data") -> Dataset:
    """Convert any of the forms listed in this module's docstring, except ClientsOnDemand.

    Args:
        value: The data.
        name: What messages call them.

    Raises:
        UserError: If the value has none of these forms, or the data cannot be used.
    """
    if isinstance(value, Dataset):
        return value
    if isinstance(value, list):
        return convert_clients_to_dataset(value, name=name)
    if isinstance(value, Examples) or _is_pair(value) or _is_torch_dataset(value):
        train = convert_to_examples(value, where=name)
        warn_if_random(name, [(make_item_reader(value), train)])
        return make_dataset(name, train)
    if isinstance(value, tuple) and len(value) == 2:
        first, test = value
        if isinstance(first, list):
            return convert_clients_to_dataset(first, test, name=name)
        held_out = None if test is None else convert_to_examples(test, where=f"{name}, the test set")
        train = convert_to_examples(first, where=f"{name}, the training set")
        warn_if_random(f"{name}, the training set", [(make_item_reader(first), train)])
        warn_if_test_is_random(name, test, held_out)
        return make_dataset(name, train, held_out)
    raise UserError(
        f"{name} must return a fedcm Dataset, (train, test), a list of clients, (clients, test) or ClientsOnDemand, "
        f"got {_describe_value(value)}"
    )


def convert_clients_to_dataset(
    clients: Sequence[Any], test: Any | None = None, *, names: Sequence[str] | None = None, name: str = "clients"
) -> Dataset:
    """Join the clients of a natural split into one dataset.

    Args:
        clients: For each client a torch dataset or a pair (features, labels).
        test: The test set, a torch dataset or a pair.
        names: The clients' names; by default their indices.
        name: What messages call the data.

    Raises:
        UserError: If there is no client, a name is used twice, or the data cannot be used.
    """
    if not clients:
        raise UserError(f"{name}: there must be at least one client, got an empty list")
    names = [str(index) for index in range(len(clients))] if names is None else list(names)
    if len(names) != len(clients) or len(set(names)) != len(names):
        raise UserError(
            f"{name}: each client must have its own name, got {len(set(names))} different names for {len(clients)} "
            "clients"
        )
    parts = [
        convert_to_examples(client, where=f"{name}, client {client_name}")
        for client, client_name in zip(clients, names, strict=True)
    ]
    held_out = None if test is None else convert_to_examples(test, where=f"{name}, the test set")
    warn_if_random(name, [(make_item_reader(client), part) for client, part in zip(clients, parts, strict=True)])
    warn_if_test_is_random(name, test, held_out)
    return join_clients(name, parts, names, held_out)


def warn_if_test_is_random(name: str, test: Any, held_out: Examples | None) -> None:
    """Warn if the items of a test set are random; `held_out` are the examples that were read from it."""
    if held_out is not None:
        warn_if_random(f"{name}, the test set", [(make_item_reader(test), held_out)], held_out=True)


def convert_to_examples(value: Any, *, where: str = "data") -> Examples:
    """Convert a map-style torch dataset of (x, y), or a pair (features, labels) of tensors or arrays.

    Args:
        value: The dataset or pair.
        where: The beginning of error messages.

    Raises:
        UserError: If the value is something else, or the data cannot be used.
    """
    if _is_plain_tensor_dataset(value):
        value = value.tensors
    if isinstance(value, tuple) and _is_pair(value):
        features, labels = value
        # tensors are channel-first by torch's convention; arrays may be either
        return make_examples(
            _convert_to_array(features),
            _convert_to_array(labels),
            where,
            channel_last=not isinstance(features, torch.Tensor),
        )
    if _is_torch_dataset(value):
        return _read_all_items(value, where)
    raise UserError(
        f"{where} must be a torch dataset with a length and examples (x, y), or a pair (features, labels) of tensors "
        f"or arrays, got {_describe_value(value)}"
    )


def make_item_reader(value: Any) -> ReadItem | None:
    """Return a function that reads one item of a torch dataset again; None if the data are not read item by item."""
    if isinstance(value, tuple) or _is_plain_tensor_dataset(value) or not _is_torch_dataset(value):
        return None

    def read(index: int) -> Examples:
        item = _read_item(value, index, "an item read again")
        return make_examples(item.x[None], item.y[None], "an item read again", channel_last=not item.is_tensor)

    return read


def _read_all_items(dataset: Any, where: str) -> Examples:
    size = len(dataset)
    if size == 0:
        raise UserError(f"{where}: there must be at least one example, got an empty dataset")
    items: list[_Item] = []
    for index in range(size):
        item = _read_item(dataset, index, where)
        items.append(item)
        if (item.x.shape, item.y.shape) != (items[0].x.shape, items[0].y.shape):
            raise UserError(
                f"{where}: examples must have one shape, got x {items[0].x.shape}, y {items[0].y.shape} at index 0 and "
                f"x {item.x.shape}, y {item.y.shape} at index {index}"
            )
    features, labels = np.stack([item.x for item in items]), np.stack([item.y for item in items])
    return make_examples(features, labels, where, channel_last=not all(item.is_tensor for item in items))


class _Item(NamedTuple):
    x: np.ndarray
    y: np.ndarray
    is_tensor: bool  # whether the dataset returned x as a tensor


def _read_item(dataset: Any, index: int, where: str) -> _Item:
    try:
        example = dataset[index]
    except Exception as error:  # the user's code can raise anything
        raise UserError(f"{where}: item {index} could not be read: {describe_error(error)}") from error
    if not isinstance(example, tuple | list) or len(example) != 2:
        raise UserError(f"{where}: an example must be a pair (x, y), got {_describe_value(example)} at index {index}")
    x, y = example
    return _Item(np.atleast_1d(_convert_to_array(x)), _convert_to_array(y), isinstance(x, torch.Tensor))


def _convert_to_array(value: Any) -> np.ndarray:
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        return (value.float() if value.dtype == torch.bfloat16 else value).numpy()
    return np.asarray(value)


def _is_plain_tensor_dataset(value: Any) -> bool:
    """Return whether this is a TensorDataset of features and labels whose items no subclass changes."""
    plain = isinstance(value, TensorDataset) and type(value).__getitem__ is TensorDataset.__getitem__
    return plain and len(value.tensors) == 2


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and all(isinstance(x, torch.Tensor | np.ndarray) for x in value)


def _is_torch_dataset(value: Any) -> bool:
    """Return whether the value has a length and items by index; it need not derive from torch's class."""
    sized = hasattr(value, "__len__") and hasattr(value, "__getitem__")
    builtin = isinstance(value, list | tuple | dict | str | bytes | np.ndarray | torch.Tensor)
    return sized and (isinstance(value, TorchDataset) or not builtin)


def _describe_value(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}: {', '.join(type(x).__name__ for x in value[:4])}"
    return type(value).__name__
