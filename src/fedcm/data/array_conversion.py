"""Check the user's arrays and convert them to examples.

Bytes stay bytes, and their normalisation is computed exactly: with s = Σx and q = Σx² as integers over the m bytes of a
channel (over all bytes if there are no channels), mean = s / (255 m) and std = √(m q − s²) / (255 m). Floats become
float32. Wider integers become int64, because they are token ids rather than quantities.
"""

from collections.abc import Callable, Mapping
from math import sqrt
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedcm.data.dataset import IGNORED, Dataset, Examples, Normalisation
from fedcm.data.structures.ragged import Ragged
from fedcm.data.structures.tree import Tree, is_leaf, iterate_leaves, list_leaves
from fedcm.errors import UserError
from fedcm.system.storage.mapped_files import iterate_pieces

_MAX_CLASSES = 1_000_000  # a larger label is an identifier, not a class


def make_examples(features: Any, labels: Any, where: str, *, channel_last: bool = True, copy: bool = True) -> Examples:
    """Check features (n, ...) and labels (n, ...), and convert them to tensors.

    Labels keep their shape; float labels are those of a regression. Both may be structures: tuples and dicts of arrays.
    A list of arrays is one part whose examples have unequal lengths.

    Args:
        features: Numbers; images may have their channels first or last.
        labels: Class numbers, or floats.
        where: The beginning of error messages.
        channel_last: Whether four-dimensional features may have their channels in the last dimension.
        copy: Whether to copy the features. If not, they are reused if possible, and the caller must not change them.

    Raises:
        UserError: If the arrays cannot be used.
    """
    if isinstance(features, np.ndarray):
        x: Any = _convert_features(features, where, channel_last, copy or None)
    else:
        x = _convert_structure(features, where, "features", _convert_part)
    y = _convert_structure(labels, where, "labels", _convert_labels)
    if not list_leaves(x) or not list_leaves(y):
        raise UserError(f"{where}: features and labels must have at least one array each, got an empty structure")
    lengths = [len(leaf) for leaf in [*list_leaves(x), *list_leaves(y)]]
    if min(lengths) != max(lengths):
        text = " and ".join(map(str, lengths))
        raise UserError(f"{where}: features and labels must have the same length, got {text}")
    if is_leaf(y):
        _reject_ignored_examples(y, where)
    return Examples(x, y)


def make_dataset(
    name: str, train: Examples, test: Examples | None = None, validation: Examples | None = None, **split: Any
) -> Dataset:
    """Make a dataset of the user's examples; the classes and the normalisation are derived from them.

    Args:
        name: What messages call it.
        train: The training examples.
        test: The test examples.
        validation: The validation examples.
        **split: `owners` and `client_names` of a natural split; `mapped`.

    Raises:
        UserError: If the sets do not fit one model.
    """
    for other, which in ((test, "test"), (validation, "validation")):
        if other is not None:
            check_compatible(train, other, f"{name}: the training set", f"the {which} set")
    classes = _count_classes(name, [part.labels for part in (train, test, validation) if part is not None])
    normalisation = _derive_normalisation(train.features)
    return Dataset(name, train, test, classes, normalisation, validation=validation, **split)


def check_compatible(first: Examples, second: Examples, first_name: str, second_name: str) -> None:
    """Raise UserError if two sets differ in the shape or dtype of an example, so that no model could take both."""
    for what, a, b in zip(Examples._fields, first, second, strict=True):
        one, two = _describe_rows(a, b), _describe_rows(b, a)
        if one != two:
            raise UserError(
                f"{first_name} and {second_name} must have {what} of one shape and type, got {one} and {two}"
            )


def sum_bytes(features: Tensor) -> list[list[int]]:
    """Return per channel the number of bytes, their sum and the sum of their squares; these add up over sets."""
    channels = features.unbind(1) if features.dim() > 2 else [features]
    return [_sum_powers(channel) for channel in channels]


def compute_normalisation(sums: list[list[int]]) -> Normalisation:
    """Return the normalisation to mean 0 and standard deviation 1, from the result of `sum_bytes`."""
    mean = tuple(s / (255 * m) for m, s, _ in sums)
    # a channel of one value has std 0; dividing by 1 leaves it at 0
    return Normalisation(mean, tuple(sqrt(m * q - s * s) / (255 * m) or 1.0 for m, s, q in sums))


def find_largest_label(labels: Any) -> int:
    """Return the largest class number of a tensor or a `Ragged`."""
    return int((labels.values if isinstance(labels, Ragged) else labels).max())


def _describe_rows(tree: Tree, other: Tree) -> str:
    """Describe one row of every tensor of a structure; a length does not matter if it varies in either structure."""
    leaves, parts = [*iterate_leaves(tree), *iterate_leaves(other)], []
    ragged = {path for path, leaf in leaves if isinstance(leaf, Ragged)}
    for path, leaf in iterate_leaves(tree):
        shape = ("any length", *leaf.shape[2:]) if path in ragged else tuple(leaf.shape[1:])
        kind = f"{str(shape).replace(chr(39), '')} {str(leaf.dtype).removeprefix('torch.')}"
        parts.append(f"{path}: {kind}" if path else kind)
    return ", ".join(parts)


def _convert_structure(tree: Any, where: str, what: str, convert: Callable[[np.ndarray, str], Tensor]) -> Tree:
    """Convert every array of a structure; a list is one part whose examples have unequal lengths.

    Args:
        tree: The structure.
        where: The beginning of error messages.
        what: What messages call the structure, "features" or "labels".
        convert: Converts one array.
    """
    if isinstance(tree, Mapping):
        return {key: _convert_structure(part, where, f"{what}[{key!r}]", convert) for key, part in tree.items()}
    if isinstance(tree, tuple):
        return tuple(_convert_structure(part, where, f"{what}[{k}]", convert) for k, part in enumerate(tree))
    if isinstance(tree, list):
        return _convert_sequences(tree, where, what)
    place = where if what in ("features", "labels") else f"{where}, {what}"
    return convert(tree, place)


def _convert_sequences(arrays: list[np.ndarray], where: str, what: str) -> Ragged:
    lengths = [len(array) if array.ndim else 0 for array in arrays]
    if 0 in lengths:
        raise UserError(
            f"{where}: sequences of unequal lengths must have at least one element each, but {what} of example "
            f"{lengths.index(0)} has none"
        )
    joined, place = np.concatenate(arrays), f"{where}, {what}"
    if what == "features" and joined.ndim == 1 and joined.dtype.kind == "f":
        other = next(k for k, length in enumerate(lengths) if length != lengths[0])
        raise UserError(
            f"{where}: examples must have one shape, got vectors of {lengths[0]} numbers in example 0 and of "
            f"{lengths[other]} in example {other}; for sequences of unequal lengths give (length, 1)"
        )
    if not what.startswith("labels"):
        return Ragged(_convert_part(joined, place), torch.tensor(lengths))
    if joined.dtype.kind == "f":
        raise UserError(
            f"{where}: float labels must have one length, because there is no number that a loss ignores; pad them "
            "yourself, and give a loss that knows the padding"
        )
    return Ragged(_convert_label_values(joined, place, may_ignore=True), torch.tensor(lengths))


def _convert_part(array: np.ndarray, where: str) -> Tensor:
    """Convert one of several arrays of features."""
    if array.dtype.kind not in "fiub":
        raise UserError(f"{where}: features must be numbers, got an array of {array.dtype}")
    if array.ndim < 1 or 0 in array.shape:
        raise UserError(f"{where}: there must be at least one example, got features of shape {array.shape}")
    if array.dtype == np.uint8:
        raise UserError(
            f"{where}: bytes are normalised only if they are the only features; convert them to floats, such as "
            "x.float() / 255, or token ids to int64"
        )
    if array.dtype.kind == "b":
        return torch.from_numpy(array.copy())
    if array.dtype.kind in "iu":
        _check_fits_int64(array, "features", where)
        return torch.from_numpy(array.astype(np.int64))
    with np.errstate(over="ignore"):
        numbers = array.astype(np.float32)
    _check_finite(numbers, "features", where)
    return torch.from_numpy(numbers)


def _convert_features(array: np.ndarray, where: str, channel_last: bool, copy: bool | None) -> Tensor:
    if array.dtype.kind not in "fiub":
        raise UserError(f"{where}: features must be numbers, got an array of {array.dtype}")
    if array.ndim < 2:
        raise UserError(f"{where}: features must be (examples, ...), got shape {array.shape}")
    if 0 in array.shape:
        raise UserError(f"{where}: there must be at least one example, got features of shape {array.shape}")
    if channel_last and array.ndim == 4 and array.shape[3] in (1, 3, 4) and min(array.shape[1:3]) > 4:
        array = array.transpose(0, 3, 1, 2)
    if array.dtype == np.uint8 and array.ndim == 3:
        array = array[:, None]
    if array.dtype.kind in "iu":
        _check_fits_int64(array, "features", where)
        dtype = np.uint8 if array.dtype == np.uint8 else np.int64
        return torch.from_numpy(np.array(array, dtype, order="C", copy=copy))
    with np.errstate(over="ignore"):  # values that overflow become infinite, and are rejected below
        numbers = np.array(array, np.float32, order="C", copy=copy)
    _check_finite(numbers, "features", where)
    return torch.from_numpy(numbers)


def _convert_labels(array: np.ndarray, where: str) -> Tensor:
    if array.ndim < 1 or 0 in array.shape[1:]:
        raise UserError(f"{where}: labels must be (examples,) or (examples, ...), got shape {array.shape}")
    return _convert_label_values(array, where, may_ignore=array.ndim > 1)


def _convert_label_values(array: np.ndarray, where: str, *, may_ignore: bool) -> Tensor:
    """Convert labels; `may_ignore` allows -100 among the labels of an example."""
    if array.dtype.kind == "f":
        numbers = array.astype(np.float32)
        _check_finite(numbers, "labels", where)
        return torch.from_numpy(numbers)
    if array.dtype.kind not in "iub":
        raise UserError(f"{where}: labels must be integers (or floats for a regression), got an array of {array.dtype}")
    negative = array < 0
    if may_ignore:
        negative &= array != IGNORED
    if negative.any():
        example, lowest = int(np.argwhere(negative)[0][0]), array[negative].min()
        raise UserError(
            f"{where}: labels must be 0 or more, got {lowest} (the first label below 0 is in example {example})"
        )
    _check_fits_int64(array, "labels", where)
    return torch.from_numpy(array.astype(np.int64))


def _reject_ignored_examples(labels: Any, where: str) -> None:
    """Raise UserError if all labels of an example are ignored, because a batch of such examples has no loss."""
    if isinstance(labels, Ragged):
        labels = labels.pad(IGNORED)
    if labels.is_floating_point() or labels.dim() == 1:
        return
    ignored = (labels == IGNORED).flatten(1).all(1)
    if ignored.any():
        raise UserError(
            f"{where}: every example must have a label that counts, but all labels of example "
            f"{int(ignored.nonzero()[0])} are {IGNORED}, which is ignored; leave it out"
        )


def _check_fits_int64(array: np.ndarray, what: str, where: str) -> None:
    if array.dtype == np.uint64 and array.size and array.max() > np.iinfo(np.int64).max:
        raise UserError(f"{where}: {what} must be less than 2**63, got {array.max()}")


def _check_finite(numbers: np.ndarray, what: str, where: str) -> None:
    if not all(np.isfinite(piece).all() for piece in iterate_pieces(numbers)):
        bad = ~np.isfinite(numbers)
        index = np.argwhere(bad)[0]
        raise UserError(
            f"{where}: {what} must be finite as float32, got {numbers[tuple(index)]} in example {index[0]} "
            f"({int(bad.sum())} such values in total)"
        )


def _count_classes(name: str, labels: list[Tree]) -> int | None:
    if not is_leaf(labels[0]) or labels[0].is_floating_point():
        return None
    largest = max(map(find_largest_label, labels))
    if largest >= _MAX_CLASSES:
        raise UserError(f"{name}: labels must be class numbers 0, 1, 2, …, got {largest}")
    return largest + 1


def _derive_normalisation(features: Tree) -> Normalisation | None:
    is_bytes = isinstance(features, Tensor) and features.dtype == torch.uint8
    return compute_normalisation(sum_bytes(features)) if is_bytes else None


def _sum_powers(values: Tensor) -> list[int]:
    """Return Σ1, Σx and Σx² over bytes."""
    counts = np.zeros(256, np.int64)
    for piece in values.split(4096):  # in pieces, because bincount converts every byte to 8 bytes
        counts += np.bincount(piece.numpy().ravel(), minlength=256)
    return [int((counts * np.arange(256) ** power).sum()) for power in range(3)]
