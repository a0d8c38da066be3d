"""Data from the user's own code: `package.module:function`, called without arguments.

The function returns one of:

    a Dataset                          used unchanged
    (train, test)                      each a torch dataset of (x, y), or a pair (features, labels)
    [client, client, …]                a natural split: each client a torch dataset or a pair
    ([client, client, …], test)        the same with a test set
    a ClientsOnDemand                  clients whose data are created when they are needed

A single torch dataset or pair is a training set without a test set. Each example is read once, so a random transform
inside a torch dataset is drawn once; fedcm warns about it.

Features and labels are arrays, or tuples and dicts of arrays. An example of a torch dataset is (x, y), (x1, x2, …, y),
or a dict with the key "labels"; x and y may be tuples and dicts too. Sequences may have unequal lengths.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import TensorDataset

from fedcm.data.array_conversion import make_dataset, make_examples
from fedcm.data.dataset import ClientsOnDemand, Dataset, Examples
from fedcm.data.randomness_check import ReadItem, seed_global_generators, warn_if_random
from fedcm.data.sources.arrays import join_clients
from fedcm.data.structures.items import convert_to_array, describe_value, read_all_items, read_items, split_labels
from fedcm.errors import UserError
from fedcm.system.error_messages import describe_error
from fedcm.system.imports import import_object


def load_user_data(path: str, *, fresh: bool = False) -> Dataset | ClientsOnDemand:
    """Call the function that `package.module:function` names, and convert what it returns.

    Args:
        path: The function.
        fresh: Whether the training items will be read anew in every pass.

    Raises:
        UserError: If the function cannot be imported, fails, or returns something else.
    """
    function = import_object(path)
    if not callable(function):
        raise UserError(f"{path} must be a function without arguments that returns data, got {type(function).__name__}")
    try:
        value = function()
        return value if isinstance(value, ClientsOnDemand) else convert_to_dataset(value, name=path, fresh=fresh)
    except (Exception, SystemExit) as error:  # the user's code can raise anything
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path}() must return data, got {describe_error(error)}") from error


def convert_to_dataset(value: Any, *, name: str = "data", fresh: bool = False) -> Dataset:
    """Convert any of the forms listed in this module's docstring, except ClientsOnDemand.

    Args:
        value: The data.
        name: What messages call them.
        fresh: Whether the training items will be read anew in every pass.

    Raises:
        UserError: If the value has none of these forms, or the data cannot be used.
    """
    warn_of_random_items = _ignore_random_items if fresh else warn_if_random
    if isinstance(value, Dataset):
        return value
    if isinstance(value, list):
        return convert_clients_to_dataset(value, name=name, fresh=fresh)
    if isinstance(value, Examples) or _is_whole_set(value) or _is_torch_dataset(value):
        with _seed_items(fresh):
            train = convert_to_examples(value, where=name)
        warn_of_random_items(name, [(make_item_reader(value), train)])
        return make_dataset(name, train, reread=_make_reread([value], fresh))
    if isinstance(value, tuple) and len(value) == 2:
        first, test = value
        if isinstance(first, list):
            return convert_clients_to_dataset(first, test, name=name, fresh=fresh)
        with _seed_items(fresh):
            held_out = None if test is None else convert_to_examples(test, where=f"{name}, the test set")
        with _seed_items(fresh):
            train = convert_to_examples(first, where=f"{name}, the training set")
        warn_of_random_items(f"{name}, the training set", [(make_item_reader(first), train)])
        warn_if_test_is_random(name, test, held_out)
        return make_dataset(name, train, held_out, reread=_make_reread([first], fresh))
    raise UserError(
        f"{name} must return a fedcm Dataset, (train, test), a list of clients, (clients, test) or ClientsOnDemand, "
        f"got {describe_value(value)}"
    )


def convert_clients_to_dataset(
    clients: Sequence[Any],
    test: Any | None = None,
    *,
    validation: Any | None = None,
    names: Sequence[str] | None = None,
    name: str = "clients",
    fresh: bool = False,
) -> Dataset:
    """Join the clients of a natural split into one dataset.

    Args:
        clients: For each client a torch dataset or a pair (features, labels).
        test: The test set, a torch dataset or a pair.
        validation: The validation set, a torch dataset or a pair.
        names: The clients' names; by default their indices.
        name: What messages call the data.
        fresh: Whether the training items will be read anew in every pass.

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
    with _seed_items(fresh):
        parts = [
            convert_to_examples(client, where=f"{name}, client {client_name}")
            for client, client_name in zip(clients, names, strict=True)
        ]
        held_out = None if test is None else convert_to_examples(test, where=f"{name}, the test set")
        validated = None if validation is None else convert_to_examples(validation, where=f"{name}, the validation set")
    if not fresh:
        warn_if_random(name, [(make_item_reader(client), part) for client, part in zip(clients, parts, strict=True)])
    warn_if_test_is_random(name, test, held_out)
    warn_if_test_is_random(name, validation, validated, "validation")
    return replace(join_clients(name, parts, names, held_out, validated), reread=_make_reread(clients, fresh))


def _seed_items(fresh: bool) -> AbstractContextManager[None]:
    """Return the context in which items are first read: seeded if they are random, so that their checksum is not."""
    return seed_global_generators(0) if fresh else nullcontext()


def _ignore_random_items(name: str, collected: Any) -> None:
    """Do not warn of random items, because every pass draws them anew."""


def _make_reread(sets: Sequence[Any], fresh: bool) -> Callable[[Sequence[int]], Examples] | None:
    """Return a function that reads training items of these sets again, by their indices in all sets together.

    None if nothing is to be read anew, or some set is not read item by item.
    """
    if not fresh or any(make_item_reader(one) is None for one in sets):
        return None
    ends = np.cumsum([len(one) for one in sets])

    def reread(indices: Sequence[int]) -> Examples:
        owners = np.searchsorted(ends, indices, side="right").tolist()
        places = [
            (sets[owner], index - int(ends[owner]) + len(sets[owner]))
            for owner, index in zip(owners, indices, strict=True)
        ]
        return read_items(places, "items read anew")

    return reread


def warn_if_test_is_random(name: str, test: Any, held_out: Examples | None, which: str = "test") -> None:
    """Warn if the items of a test or validation set are random; `held_out` are the examples read from it."""
    if held_out is not None:
        warn_if_random(f"{name}, the {which} set", [(make_item_reader(test), held_out)], held_out=True)


def convert_to_examples(value: Any, *, where: str = "data") -> Examples:
    """Convert a map-style torch dataset of (x, y), or a pair (features, labels) of tensors or arrays.

    Args:
        value: The dataset or pair.
        where: The beginning of error messages.

    Raises:
        UserError: If the value is something else, or the data cannot be used.
    """
    if _is_plain_tensor_dataset(value):
        *inputs, labels = value.tensors
        value = (inputs[0] if len(inputs) == 1 else tuple(inputs), labels)
    if isinstance(value, Mapping) and "labels" in value:
        value = split_labels(value)
    if isinstance(value, tuple) and len(value) == 2 and all(map(_is_array_tree, value)):
        features, labels = value
        # tensors are channel-first by torch's convention; arrays may be either
        return make_examples(
            _convert_arrays(features),
            _convert_arrays(labels),
            where,
            channel_last=not isinstance(features, torch.Tensor),
        )
    if _is_torch_dataset(value):
        return read_all_items(value, where)
    raise UserError(
        f"{where} must be a torch dataset with a length and examples (x, y), a pair (features, labels) of tensors "
        f"or arrays, or a dict of them with the key 'labels', got {describe_value(value)}"
    )


def make_item_reader(value: Any) -> ReadItem | None:
    """Return a function that reads one item of a torch dataset again; None if the data are not read item by item."""
    if isinstance(value, tuple | Mapping) or _is_plain_tensor_dataset(value) or not _is_torch_dataset(value):
        return None
    return lambda index: read_items([(value, index)], "an item read again")


def _convert_arrays(tree: Any) -> Any:
    """Convert a structure of tensors and arrays; a list holds sequences of unequal lengths."""
    if isinstance(tree, Mapping):
        return {str(key): _convert_arrays(part) for key, part in tree.items()}
    if isinstance(tree, tuple):
        return tuple(_convert_arrays(part) for part in tree)
    if isinstance(tree, list):
        parts = [convert_to_array(part) for part in tree]
        return np.stack(parts) if len({part.shape for part in parts}) == 1 else parts
    return convert_to_array(tree)


def _is_plain_tensor_dataset(value: Any) -> bool:
    """Return whether this is a TensorDataset of features and labels whose items no subclass changes."""
    plain = isinstance(value, TensorDataset) and type(value).__getitem__ is TensorDataset.__getitem__
    return plain and len(value.tensors) >= 2


def _is_whole_set(value: Any) -> bool:
    """Return whether this is one set: a pair with an array of labels, or a dict of arrays with the key "labels"."""
    if isinstance(value, Mapping):
        return "labels" in value and _is_array_tree(value)
    is_pair = isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], torch.Tensor | np.ndarray)
    return is_pair and _is_array_tree(value[0])


def _is_array_tree(value: Any) -> bool:
    """Return whether this is an array, or a tuple, dict or list of arrays."""
    if isinstance(value, Mapping):
        return bool(value) and all(map(_is_array_tree, value.values()))
    if isinstance(value, tuple):
        return bool(value) and all(map(_is_array_tree, value))
    if isinstance(value, list):
        return bool(value) and all(isinstance(part, torch.Tensor | np.ndarray) and part.ndim for part in value)
    return isinstance(value, torch.Tensor | np.ndarray)


def _is_torch_dataset(value: Any) -> bool:
    """Return whether the value has a length and items by index; it need not derive from torch's class."""
    sized = hasattr(value, "__len__") and hasattr(value, "__getitem__")
    builtin = isinstance(value, list | tuple | dict | str | bytes | np.ndarray | torch.Tensor)
    return sized and (isinstance(value, TorchDataset) or not builtin)
