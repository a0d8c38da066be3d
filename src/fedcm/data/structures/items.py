"""The items of a torch dataset: read one by one, converted to arrays and joined.

An item is (x, y), (x1, x2, …, y), or a dict with the key "labels"; x and y may be tuples and dicts too.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from fedcm.data.array_conversion import make_examples
from fedcm.data.dataset import Examples
from fedcm.errors import UserError
from fedcm.system.error_messages import describe_error


def read_items(places: Sequence[tuple[Any, int]], where: str) -> Examples:
    """Read items, each given by its torch dataset and its index there."""
    items, indices = [_read_item(dataset, index, where) for dataset, index in places], [index for _, index in places]
    features = _join_items([item.x for item in items], indices, where, "x")
    labels = _join_items([item.y for item in items], indices, where, "y")
    return make_examples(features, labels, where, channel_last=not all(item.is_tensor for item in items))


def read_all_items(dataset: Any, where: str) -> Examples:
    """Read every item of a torch dataset.

    Raises:
        UserError: If the dataset is empty, or an item cannot be read.
    """
    size = len(dataset)
    if size == 0:
        raise UserError(f"{where}: there must be at least one example, got an empty dataset")
    return read_items([(dataset, index) for index in range(size)], where)


class _Item(NamedTuple):
    x: Any  # an array, or a tuple or dict of arrays
    y: Any
    is_tensor: bool  # whether the dataset returned x as a tensor


def _read_item(dataset: Any, index: int, where: str) -> _Item:
    try:
        example = dataset[index]
    except Exception as error:  # the user's code can raise anything
        raise UserError(f"{where}: item {index} could not be read: {describe_error(error)}") from error
    if isinstance(example, Mapping) and "labels" in example:
        x, y = split_labels(example)
    elif isinstance(example, tuple | list) and len(example) >= 2:
        *inputs, y = example
        x = inputs[0] if len(inputs) == 1 else _Inputs(inputs)
    else:
        raise UserError(
            f"{where}: an example must be a pair (x, y) or a dict with the key 'labels', got "
            f"{describe_value(example)} at index {index}"
        )
    features = _convert_item(x)
    if isinstance(features, np.ndarray):
        features = np.atleast_1d(features)
    return _Item(features, _convert_item(y), isinstance(x, torch.Tensor))


def _join_items(parts: list[Any], indices: Sequence[int], where: str, what: str) -> Any:
    """Stack the same part of all items; parts that differ only in their length become a list."""
    first = parts[0]
    if isinstance(first, Mapping):
        for part, index in zip(parts, indices, strict=True):
            if not isinstance(part, Mapping) or part.keys() != first.keys():
                given = list(part) if isinstance(part, Mapping) else describe_value(part)
                raise UserError(
                    f"{where}: examples must have the same keys in {what}, got {list(first)} at index {indices[0]} and "
                    f"{given} at index {index}"
                )
        return {key: _join_items([part[key] for part in parts], indices, where, f"{what}[{key!r}]") for key in first}
    if isinstance(first, tuple):
        for part, index in zip(parts, indices, strict=True):
            if not isinstance(part, tuple) or len(part) != len(first):
                raise UserError(
                    f"{where}: examples must have the same parts in {what}, got {len(first)} at index {indices[0]} and "
                    f"{describe_value(part)} at index {index}"
                )
        return tuple(
            _join_items(list(each), indices, where, f"{what}[{k}]") for k, each in enumerate(zip(*parts, strict=True))
        )
    same_length = True
    for part, index in zip(parts, indices, strict=True):
        is_array = isinstance(part, np.ndarray)
        if is_array and part.shape == first.shape:
            continue
        same_length = False
        if not is_array or not part.ndim or part.ndim != first.ndim or part.shape[1:] != first.shape[1:]:
            raise UserError(
                f"{where}: examples must have one shape, or sequences of unequal lengths, got {what} {first.shape} at "
                f"index {indices[0]} and {part.shape if is_array else describe_value(part)} at index {index}"
            )
    return np.stack(parts) if same_length else parts


def split_labels(example: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    """Return the features of an example that is a dict, and its labels."""
    return {str(key): value for key, value in example.items() if key != "labels"}, example["labels"]


class _Inputs(tuple[Any, ...]):
    """The inputs x1, x2, … of an example (x1, x2, …, y), which are numbers or arrays."""


def _convert_item(value: Any) -> Any:
    """Convert what a dataset returns for one example; a tuple, list or dict of tensors is a structure."""
    if isinstance(value, Mapping):
        return {str(key): _convert_item(part) for key, part in value.items()}
    has_arrays = isinstance(value, tuple | list) and any(
        isinstance(part, torch.Tensor | np.ndarray | Mapping) for part in value
    )
    if has_arrays or isinstance(value, _Inputs):
        return tuple(_convert_item(part) for part in value)
    return convert_to_array(value)


def convert_to_array(value: Any) -> np.ndarray:
    """Convert a tensor, an array, a number or a list of numbers."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        return (value.float() if value.dtype == torch.bfloat16 else value).numpy()
    return np.asarray(value)


def describe_value(value: Any) -> str:
    """Return the type of a value for an error message; of a tuple or list, also the types of its parts."""
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}: {', '.join(type(x).__name__ for x in value[:4])}"
    return type(value).__name__
