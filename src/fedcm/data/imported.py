"""Data from the user's own code: `package.module:function`, called without arguments.

    a Dataset                          as it is
    (train, test)                      each a torch dataset of (x, y), or a pair (features, labels)
    [client, client, …]                a natural split: each client a torch dataset or a pair
    ([client, client, …], test)        the same, with a test set
    a ClientsOnDemand                  clients whose data are made when they are asked for

A lone torch dataset or pair is a training set without a test set. Each example is read once, so a random transform
inside a torch dataset is drawn once, and the user is warned of it.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import TensorDataset

from fedcm.data.dataset import ClientsOnDemand, Dataset, Examples
from fedcm.data.examples import make_dataset, make_examples
from fedcm.data.random_items import ReadItem, warn_if_random
from fedcm.data.sources.arrays import join_clients
from fedcm.errors import UserError
from fedcm.system.faults import describe_error
from fedcm.system.imports import import_path


def load(path: str) -> Dataset | ClientsOnDemand:
    """Call what `package.module:function` names and take what it gives."""
    function = import_path(path)
    if not callable(function):
        raise UserError(f"{path} must be a function without arguments that gives data, got {type(function).__name__}")
    try:
        given = function()
        return given if isinstance(given, ClientsOnDemand) else from_given(given, name=path)
    except (Exception, SystemExit) as error:  # the user's own code: anything can come out of it
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path}() must give data, got {describe_error(error)}") from error


def from_given(given: Any, *, name: str = "data") -> Dataset:
    """Any of the forms that this module's docstring lists, but for clients on demand, which are no whole."""
    if isinstance(given, Dataset):
        return given
    if isinstance(given, list):
        return from_clients(given, name=name)
    if isinstance(given, Examples) or _is_pair(given) or _is_torch_dataset(given):
        train = as_examples(given, where=name)
        warn_if_random(name, [(item_reader(given), train)])
        return make_dataset(name, train)
    if isinstance(given, tuple) and len(given) == 2:
        first, test = given
        if isinstance(first, list):
            return from_clients(first, test, name=name)
        held_out = None if test is None else as_examples(test, where=f"{name}, the test set")
        train = as_examples(first, where=f"{name}, the training set")
        warn_if_random(f"{name}, the training set", [(item_reader(first), train)])
        warn_if_test_is_random(name, test, held_out)
        return make_dataset(name, train, held_out)
    raise UserError(
        f"{name} must give a fedcm Dataset, (train, test), a list of clients, (clients, test) or ClientsOnDemand, "
        f"got {_described(given)}"
    )


def from_clients(
    clients: Sequence[Any], test: Any | None = None, *, names: Sequence[str] | None = None, name: str = "clients"
) -> Dataset:
    """Data that bring their own split: one torch dataset or pair (features, labels) a client."""
    if not clients:
        raise UserError(f"{name}: there must be at least one client, got an empty list")
    names = [str(number) for number in range(len(clients))] if names is None else list(names)
    if len(names) != len(clients) or len(set(names)) != len(names):
        raise UserError(
            f"{name}: each client must have one name of its own, got {len(names)} for {len(clients)} clients"
        )
    parts = [
        as_examples(client, where=f"{name}, client {client_name}")
        for client, client_name in zip(clients, names, strict=True)
    ]
    held_out = None if test is None else as_examples(test, where=f"{name}, the test set")
    warn_if_random(name, [(item_reader(client), part) for client, part in zip(clients, parts, strict=True)])
    warn_if_test_is_random(name, test, held_out)
    return join_clients(name, parts, names, held_out)


def warn_if_test_is_random(name: str, test: Any, held_out: Examples | None) -> None:
    if held_out is not None:
        warn_if_random(f"{name}, the test set", [(item_reader(test), held_out)], held_out=True)


def as_examples(given: Any, *, where: str = "data") -> Examples:
    """A map-style torch dataset of (x, y), or a pair (features, labels) of tensors or arrays, checked."""
    if _holds_pair(given):
        given = given.tensors
    if isinstance(given, tuple) and _is_pair(given):
        features, labels = given
        # a tensor is channel-first by torch's custom; an array may be either
        return make_examples(
            _array(features), _array(labels), where, channel_last=not isinstance(features, torch.Tensor)
        )
    if _is_torch_dataset(given):
        return _collected(given, where)
    raise UserError(
        f"{where} must be a torch dataset with a length and examples (x, y), or a pair (features, labels) of tensors "
        f"or arrays, got {_described(given)}"
    )


def item_reader(given: Any) -> ReadItem | None:
    """How to read an item of a torch dataset again; None for whatever is not read item by item."""
    if isinstance(given, tuple) or _holds_pair(given) or not _is_torch_dataset(given):
        return None

    def read(index: int) -> Examples:
        item = _item(given, index, "an item read again")
        return make_examples(item.x[None], item.y[None], "an item read again", channel_last=not item.tensor)

    return read


def _collected(given: Any, where: str) -> Examples:
    size = len(given)
    if size == 0:
        raise UserError(f"{where}: there must be at least one example, got an empty dataset")
    items: list[_Item] = []
    for index in range(size):
        item = _item(given, index, where)
        items.append(item)
        if (item.x.shape, item.y.shape) != (items[0].x.shape, items[0].y.shape):
            raise UserError(
                f"{where}: examples must have one shape, got x {items[0].x.shape}, y {items[0].y.shape} at index 0 and "
                f"x {item.x.shape}, y {item.y.shape} at index {index}"
            )
    features, labels = np.stack([item.x for item in items]), np.stack([item.y for item in items])
    return make_examples(features, labels, where, channel_last=not all(item.tensor for item in items))


class _Item(NamedTuple):
    x: np.ndarray
    y: np.ndarray
    tensor: bool  # whether x came as one


def _item(given: Any, index: int, where: str) -> _Item:
    try:
        example = given[index]
    except Exception as error:  # the user's own code: anything can come out of it
        raise UserError(f"{where}: item {index} could not be read: {describe_error(error)}") from error
    if not isinstance(example, tuple | list) or len(example) != 2:
        raise UserError(f"{where}: an example must be a pair (x, y), got {_described(example)} at index {index}")
    x, y = example
    return _Item(np.atleast_1d(_array(x)), _array(y), isinstance(x, torch.Tensor))


def _array(value: Any) -> np.ndarray:
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        return (value.float() if value.dtype == torch.bfloat16 else value).numpy()
    return np.asarray(value)


def _holds_pair(given: Any) -> bool:
    """A TensorDataset of features and labels, unless its items are made by a subclass of the user's."""
    plain = isinstance(given, TensorDataset) and type(given).__getitem__ is TensorDataset.__getitem__
    return plain and len(given.tensors) == 2


def _is_pair(given: Any) -> bool:
    return isinstance(given, tuple) and len(given) == 2 and all(isinstance(x, torch.Tensor | np.ndarray) for x in given)


def _is_torch_dataset(given: Any) -> bool:
    """Any object with a length and examples by number will do: torch's own class is only the usual one."""
    sized = hasattr(given, "__len__") and hasattr(given, "__getitem__")
    builtin = isinstance(given, list | tuple | dict | str | bytes | np.ndarray | torch.Tensor)
    return sized and (isinstance(given, TorchDataset) or not builtin)


def _described(given: Any) -> str:
    if isinstance(given, tuple | list):
        return f"a {type(given).__name__} of {len(given)}: {', '.join(type(x).__name__ for x in given[:4])}"
    return type(given).__name__
