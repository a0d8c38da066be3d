"""Random changes of training images, anew in every local step: crop, flip, cutout, or the user's own function.

A change is a function of a batch and a generator, which is seeded by (seed, round, client, step). It sees images as the
model does: normalised, so that 0 is the mean colour of the dataset.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import signature
from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from fedcm.data.dataset import Examples
from fedcm.data.structures.tree import list_leaves
from fedcm.errors import UserError, suggest
from fedcm.system.error_messages import describe_error
from fedcm.system.imports import import_object

Augment = Callable[[Examples, Generator], Examples]


def crop(images: Tensor, generator: Generator, padding: int | None = None) -> Tensor:
    """Shift each image by up to `padding` pixels in each direction; the border is filled with 0.

    This is a crop of the original size at a random place of the padded image.

    Args:
        images: (n, channels, height, width).
        generator: The source of randomness.
        padding: Pixels at each side; by default an eighth of the height, 4 for images of 32 × 32.
    """
    size, channels, height, width = images.shape
    padding = height // 8 if padding is None else padding
    shifts = torch.randint(0, 2 * padding + 1, (2, size), generator=generator).to(images.device)
    # a row of the result is one contiguous piece of memory in the padded image, which is copied as a whole
    is_last = images.is_contiguous(memory_format=torch.channels_last)
    unit, planes = (channels, 1) if is_last else (1, channels)
    rows = images.permute(0, 2, 3, 1) if is_last else images
    border = (0, 0, padding, padding, padding, padding) if is_last else (padding, padding, padding, padding)
    padded = F.pad(rows, border).contiguous().view(-1)
    tall, wide = height + 2 * padding, width + 2 * padding
    pieces = padded.as_strided((padded.numel() // unit - width + 1, width * unit), (unit, 1))
    plane = torch.arange(size * planes, device=images.device).view(size, planes) * tall
    first_row = plane[:, :, None] + shifts[0][:, None, None] + torch.arange(height, device=images.device)
    starts = first_row * wide + shifts[1][:, None, None]
    taken = pieces.index_select(0, starts.reshape(-1))
    if is_last:
        return taken.view(size, height, width, channels).permute(0, 3, 1, 2)
    return taken.view(size, channels, height, width)


def flip(images: Tensor, generator: Generator, probability: float = 0.5) -> Tensor:
    """Mirror each image from left to right with this probability."""
    chosen = (torch.rand(len(images), generator=generator) < probability).nonzero()[:, 0].to(images.device)
    # in the order of memory, and only the chosen images, because mirroring is slow
    is_last = images.is_contiguous(memory_format=torch.channels_last)
    rows, axis = (images.permute(0, 2, 3, 1), 2) if is_last else (images, 3)
    changed = rows.clone()
    changed.index_copy_(0, chosen, rows.index_select(0, chosen).flip(axis))
    return changed.permute(0, 3, 1, 2) if is_last else changed


def cutout(images: Tensor, generator: Generator, size: int | None = None) -> Tensor:
    """Set a square of each image to 0; its centre is uniform in the image, so it may extend over the border.

    Args:
        images: (n, channels, height, width).
        generator: The source of randomness.
        size: The side of the square; by default half of the height, 16 for images of 32 × 32.

    DeVries & Taylor, "Improved Regularization of Convolutional Neural Networks with Cutout", 2017.
    """
    count, _, height, width = images.shape
    size = height // 2 if size is None else size
    inside = []
    for length in (height, width):
        first = torch.randint(0, length, (count, 1), generator=generator) - size // 2
        place = torch.arange(length)
        inside.append((place >= first) & (place < first + size))
    square = inside[0][:, None, :, None] & inside[1][:, None, None, :]
    return torch.where(square.to(images.device), 0.0, images)  # keeps the layout, as masked_fill does not


IMAGE_CHANGES: dict[str, Callable[..., Tensor]] = {"crop": crop, "flip": flip, "cutout": cutout}


def make_augment(changes: Sequence[Any]) -> Augment:
    """Return the function that applies these changes one after another.

    Args:
        changes: Each a name, a table with `name` and its options, `package.module:function`, or a function
            `(batch, generator) -> batch`.

    Raises:
        UserError: If there is no such change or option.
    """
    functions = [_make_change(change) for change in changes]

    def augment(batch: Examples, generator: Generator) -> Examples:
        for function in functions:
            batch = function(batch, generator)
        return batch

    return augment


def _make_change(change: Any) -> Augment:
    if isinstance(change, Mapping):
        options = {key: value for key, value in change.items() if key != "name"}
        name = change.get("name")
    else:
        name, options = change, {}
    if isinstance(name, str) and name in IMAGE_CHANGES:
        return partial(_change_images, name, options=_check_options(name, options))
    if isinstance(name, str) and ":" not in name:
        raise UserError(
            f"data.augment has no change of images {name!r}; {suggest(name, IMAGE_CHANGES)}; write your own as "
            "'package.module:function'"
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
        if key != "probability" and not (isinstance(value, int) and is_number and value >= 0):
            raise UserError(f"data.augment {name!r}: {key} must be a whole number of at least 0, got {value!r}")
    return options


def _change_images(name: str, batch: Examples, generator: Generator, *, options: dict[str, Any]) -> Examples:
    images = batch.features
    if not (isinstance(images, Tensor) and images.dim() == 4 and images.is_floating_point()):
        shape = tuple(images.shape[1:]) if isinstance(images, Tensor) else type(images).__name__
        raise UserError(f"data.augment {name!r} needs images (channels, height, width), got features {shape}")
    for leaf in list_leaves(batch.labels):
        if leaf.dim() > 2 and leaf.shape[-2:] == images.shape[-2:]:
            raise UserError(
                f"data.augment {name!r} changes images and not their labels, got a label for every pixel, "
                f"{tuple(leaf.shape[1:])}; write a function (batch, generator) that changes both"
            )
    return Examples(IMAGE_CHANGES[name](images, generator, **options), batch.labels)


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
