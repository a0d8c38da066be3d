"""Random changes of training images, anew in every local step: crop, flip, cutout, or the user's own function.

A change is a function of a batch and a generator, which is seeded by (seed, round, client, step). It sees images as the
model does: normalised, so that 0 is the mean colour of the dataset.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import signature
from typing import Any

import torch
from torch import Generator, Tensor

from fedcm.data.augmentation.images import IMAGE_CHANGES, crop_and_flip
from fedcm.data.dataset import Examples
from fedcm.data.structures.tree import list_leaves
from fedcm.errors import UserError, suggest
from fedcm.system.error_messages import describe_error
from fedcm.system.imports import import_object

Augment = Callable[[Examples, Generator], Examples]


def make_augment(changes: Sequence[Any]) -> Augment:
    """Return the function that applies these changes one after another.

    Args:
        changes: Each a name, a table with `name` and its options, `package.module:function`, or a function
            `(batch, generator) -> batch`.

    Raises:
        UserError: If there is no such change or option.
    """
    parts = [_split_options(change) for change in changes]
    functions: list[Augment] = []
    for index, (name, options) in enumerate(parts):
        if name == "flip" and index and parts[index - 1][0] == "crop":  # one pass, which is faster
            both = parts[index - 1][1] | _check_options(name, options)
            functions[-1] = partial(_change_images, "crop", crop_and_flip, both)
        elif isinstance(name, str) and name in IMAGE_CHANGES:
            functions.append(partial(_change_images, name, IMAGE_CHANGES[name], _check_options(name, options)))
        else:
            functions.append(_make_own(name, options))

    def augment(batch: Examples, generator: Generator) -> Examples:
        for function in functions:
            batch = function(batch, generator)
        return batch

    return augment


def _split_options(change: Any) -> tuple[Any, dict[str, Any]]:
    if not isinstance(change, Mapping):
        return change, {}
    if "name" not in change:
        raise UserError(
            f'a change of data.augment must have a name, such as {{name = "cutout", size = 4}}, got {dict(change)}'
        )
    return change.get("name"), {key: value for key, value in change.items() if key != "name"}


def _make_own(name: Any, options: dict[str, Any]) -> Augment:
    if isinstance(name, str) and ":" not in name:
        raise UserError(
            f"data.augment has no change of images {name!r}; write your own as 'package.module:function'; "
            f"{suggest(name, IMAGE_CHANGES)}"
        )
    function = import_object(name) if isinstance(name, str) else name
    if not callable(function):
        raise UserError(
            "data.augment must name changes of images, or functions (batch, generator) that return a batch, got "
            f"{name!r}"
        )
    return partial(_call_user_function, function, options=options)


def _check_options(name: str, options: dict[str, Any]) -> dict[str, Any]:
    known = list(signature(IMAGE_CHANGES[name]).parameters)[2:]
    for key, value in options.items():
        if key not in known:
            raise UserError(f"data.augment {name!r} has no option {key!r}; {suggest(key, known)}")
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if key == "probability" and not (is_number and 0 <= value <= 1):
            raise UserError(f"data.augment {name!r}: {key} must be between 0 and 1, got {value!r}")
        if key != "probability" and not (isinstance(value, int) and is_number and value >= 1):
            raise UserError(f"data.augment {name!r}: {key} must be a whole number of at least 1, got {value!r}")
    return options


def _change_images(
    name: str, change: Callable[..., Tensor], options: dict[str, Any], batch: Examples, generator: Generator
) -> Examples:
    images = batch.features
    if not (isinstance(images, Tensor) and images.dim() == 4 and images.is_floating_point()):
        shape = tuple(images.shape[1:]) if isinstance(images, Tensor) else type(images).__name__
        raise UserError(f"data.augment {name!r} needs images (channels, height, width), got features {shape}")
    height, width = images.shape[2:]
    if options.get("padding", 0) >= min(height, width):
        raise UserError(
            f"data.augment {name!r}: padding must be below height and width of the images, {height} × {width}, so that "
            f"they stay in sight, got {options['padding']}"
        )
    if options.get("size", 0) > max(height, width):
        raise UserError(
            f"data.augment {name!r}: size must be at most that of the images, {height} × {width}, got {options['size']}"
        )
    for leaf in list_leaves(batch.labels):
        if leaf.dim() > 2 and leaf.shape[-2:] == images.shape[-2:]:
            raise UserError(
                f"data.augment {name!r} changes images and not their labels, got a label for every pixel, "
                f"{tuple(leaf.shape[1:])}; write a function (batch, generator) that changes both"
            )
    return Examples(change(images, generator, **options), batch.labels)


def _call_user_function(
    function: Callable[..., Any], batch: Examples, generator: Generator, *, options: dict[str, Any]
) -> Examples:
    result = function(batch, generator, **options)
    if isinstance(result, tuple) and len(result) == 2:
        leaves = list_leaves(result)
        if leaves and all(isinstance(leaf, Tensor) and leaf.shape[:1] == (batch.size,) for leaf in leaves):
            return Examples(*result)
    raise UserError(
        f"a function of data.augment must return (features, labels) of the {batch.size} examples that it got, got "
        f"{_describe_result(result)}"
    )


def _describe_result(result: Any) -> str:
    """Describe a wrong result: its type, or the shapes of its tensors."""
    if not isinstance(result, tuple | Mapping):
        return type(result).__name__
    leaves = [tuple(leaf.shape) if isinstance(leaf, Tensor) else type(leaf).__name__ for leaf in list_leaves(result)]
    return f"a {type(result).__name__} of {', '.join(map(str, leaves)) or 'nothing'}"


def reject_failing_augment(augment: Augment, sample: Examples) -> Examples:
    """Raise UserError if the changes fail on some examples; otherwise return the changed examples."""
    try:
        return augment(sample, torch.Generator().manual_seed(0))
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"data.augment failed on {sample.size} examples: {describe_error(error)}") from error
