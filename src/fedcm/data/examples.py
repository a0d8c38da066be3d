"""Arrays that a person gives become examples, or are refused with the reason.

Bytes stay bytes, and their normalisation is exact: with s = Σx and q = Σx² as integers over the m bytes of a channel
(over all of them where there are no channels), mean = s / (255 m) and std = √(m q − s²) / (255 m). Floats go to the
model as float32, and wider integers as int64: they are numbers of tokens, not amounts.
"""

from math import sqrt
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedcm.data.dataset import Dataset, Examples, Normalisation
from fedcm.errors import UserError

_MOST_CLASSES = 1_000_000  # a larger label is an identity number, not a class


def make_examples(
    features: np.ndarray, labels: np.ndarray, where: str, *, channel_last: bool = True, copy: bool = True
) -> Examples:
    """Features (n, ...) and labels (n, ...), checked; `where` begins each refusal. Labels keep their shape.
    Float labels are a regression's.

    Without `copy` nobody else may hold the features: they are kept as they are where that can be."""
    x, y = _features(features, where, channel_last, copy or None), _labels(labels, where)
    if len(x) != len(y):
        raise UserError(f"{where}: features and labels must have the same length, got {len(x)} and {len(y)}")
    return Examples(x, y)


def make_dataset(name: str, train: Examples, test: Examples | None = None, **split: Any) -> Dataset:
    """A user's examples as a whole; what a split brings (`owners`, `client_names`) goes through."""
    if test is not None:
        same_kind(train, test, f"{name}: the training set", "the test set")
    labels = [train.labels] if test is None else [train.labels, test.labels]
    return Dataset(name, train, test, _classes(name, labels), _normalisation(train.features), **split)


def same_kind(one: Examples, other: Examples, one_name: str, other_name: str) -> None:
    """Refuse two sets that one model could not take."""
    for what, a, b in (("features", one.features[0], other.features[0]), ("labels", one.labels[0], other.labels[0])):
        if a.shape != b.shape or a.dtype != b.dtype:
            raise UserError(
                f"{one_name} and {other_name} must have {what} of one shape and kind, "
                f"got {_described(a)} and {_described(b)}"
            )


def _described(example: Tensor) -> str:
    return f"{tuple(example.shape)} {str(example.dtype).removeprefix('torch.')}"


def _features(array: np.ndarray, where: str, channel_last: bool, copy: bool | None) -> Tensor:
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
        _fits(array, "features", where)
        kind = np.uint8 if array.dtype == np.uint8 else np.int64
        return torch.from_numpy(np.array(array, kind, order="C", copy=copy))
    with np.errstate(over="ignore"):  # what does not fit becomes infinite, and is refused as such
        numbers = np.array(array, np.float32, order="C", copy=copy)
    _finite(numbers, "features", where)
    return torch.from_numpy(numbers)


def _labels(array: np.ndarray, where: str) -> Tensor:
    if array.ndim < 1 or 0 in array.shape[1:]:
        raise UserError(f"{where}: labels must be (examples,) or (examples, ...), got shape {array.shape}")
    if array.dtype.kind == "f":
        numbers = array.astype(np.float32)
        _finite(numbers, "labels", where)
        return torch.from_numpy(numbers)
    if array.dtype.kind not in "iub":
        raise UserError(f"{where}: labels must be integers (or floats for a regression), got an array of {array.dtype}")
    if array.size and array.min() < 0:
        example = int(np.argwhere(array < 0)[0][0])
        raise UserError(
            f"{where}: labels must be 0 or more, got {array.min()} (the first below 0 in example {example})"
        )
    _fits(array, "labels", where)
    return torch.from_numpy(array.astype(np.int64))


def _fits(array: np.ndarray, what: str, where: str) -> None:
    if array.dtype == np.uint64 and array.size and array.max() > np.iinfo(np.int64).max:
        raise UserError(f"{where}: {what} must be less than 2**63, got {array.max()}")


def _finite(numbers: np.ndarray, what: str, where: str) -> None:
    bad = ~np.isfinite(numbers)
    if bad.any():
        index = np.argwhere(bad)[0]
        raise UserError(
            f"{where}: {what} must be finite as float32, got {numbers[tuple(index)]} in example {index[0]} "
            f"({int(bad.sum())} such values in all)"
        )


def _classes(name: str, labels: list[Tensor]) -> int | None:
    if labels[0].is_floating_point():
        return None
    largest = max(int(part.max()) for part in labels)
    if largest >= _MOST_CLASSES:
        raise UserError(f"{name}: labels must be the classes' numbers 0, 1, 2, …, got {largest}")
    return largest + 1


def _normalisation(features: Tensor) -> Normalisation | None:
    return normalisation_from(byte_sums(features)) if features.dtype == torch.uint8 else None


def byte_sums(features: Tensor) -> list[list[int]]:
    """How many bytes, their sum and the sum of their squares, a channel each; sums of several sets may be added."""
    channels = features.unbind(1) if features.dim() > 2 else [features]
    return [_sums(channel) for channel in channels]


def normalisation_from(sums: list[list[int]]) -> Normalisation:
    mean = tuple(s / (255 * m) for m, s, _ in sums)
    # a channel of one colour has std 0: dividing by 1 leaves it at 0
    return Normalisation(mean, tuple(sqrt(m * q - s * s) / (255 * m) or 1.0 for m, s, q in sums))


def _sums(values: Tensor) -> list[int]:
    counts = np.zeros(256, np.int64)
    for some in values.split(4096):  # counting makes 8 bytes of each
        counts += np.bincount(some.numpy().ravel(), minlength=256)
    return [int((counts * np.arange(256) ** power).sum()) for power in range(3)]
