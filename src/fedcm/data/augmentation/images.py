"""Random crops, flips and cutouts of a batch of images, exact and fast in both memory layouts.

Images are (n, channels, height, width), contiguous or channels last, and the result has the layout of what was given.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Generator, Tensor


def crop(images: Tensor, generator: Generator, padding: int | None = None) -> Tensor:
    """Shift each image by up to `padding` pixels in each direction; the border is filled with 0.

    This is a crop of the original size at a random place of the padded image.

    Args:
        images: (n, channels, height, width).
        generator: The source of randomness.
        padding: Pixels at each side; by default an eighth of the height, at least 1: 4 for images of 32 × 32.
    """
    shifts = _draw_shifts(images, generator, padding)
    return _shift_and_mirror(images, shifts, torch.zeros(len(images), dtype=torch.bool))


def flip(images: Tensor, generator: Generator, probability: float = 0.5) -> Tensor:
    """Mirror each image from left to right with this probability."""
    return _mirror_in_place(images.clone(), _draw_mirrored(images, generator, probability))


def crop_and_flip(images: Tensor, generator: Generator, padding: int | None = None, probability: float = 0.5) -> Tensor:
    """Return what `crop` and then `flip` return with the same generator, in one pass over the images."""
    shifts = _draw_shifts(images, generator, padding)
    return _shift_and_mirror(images, shifts, _draw_mirrored(images, generator, probability))


def cutout(images: Tensor, generator: Generator, size: int | None = None) -> Tensor:
    """Set a square of each image to 0; its centre is uniform in the image, so it may extend over the border.

    Args:
        images: (n, channels, height, width).
        generator: The source of randomness.
        size: The side of the square; by default half of the height, 16 for images of 32 × 32.

    DeVries & Taylor, "Improved Regularization of Convolutional Neural Networks with Cutout", 2017.
    """
    count, _, height, width = images.shape
    size = max(1, height // 2) if size is None else size
    inside = []
    for length in (height, width):
        first = torch.randint(0, length, (count, 1), generator=generator) - size // 2
        place = torch.arange(length)
        inside.append((place >= first) & (place < first + size))
    square = inside[0][:, None, :, None] & inside[1][:, None, None, :]
    return torch.where(square.to(images.device), 0.0, images)  # keeps the layout, as masked_fill does not


IMAGE_CHANGES: dict[str, Callable[..., Tensor]] = {"crop": crop, "flip": flip, "cutout": cutout}


def _draw_shifts(images: Tensor, generator: Generator, padding: int | None) -> Tensor:
    """Return how far each image moves up and to the left: (2, n)."""
    padding = max(1, images.shape[2] // 8) if padding is None else padding
    return torch.randint(0, 2 * padding + 1, (2, len(images)), generator=generator) - padding


def _draw_mirrored(images: Tensor, generator: Generator, probability: float) -> Tensor:
    return torch.rand(len(images), generator=generator) < probability


def _shift_and_mirror(images: Tensor, shifts: Tensor, is_mirrored: Tensor) -> Tensor:
    if images.device.type == "cpu" and images.dtype in (torch.float32, torch.float64):
        return copy_parts(images, shifts, is_mirrored)
    return _mirror_in_place(gather_rows(images, shifts), is_mirrored)


def copy_parts(images: Tensor, shifts: Tensor, is_mirrored: Tensor) -> Tensor:
    """Shift each image, then mirror some of them, one image after another; for images that NumPy can read.

    On a CPU this takes less time than a few operations of torch on the whole batch, because it touches little memory
    and runs little code that the gradient's computation has displaced from the caches.
    """
    height, width = images.shape[2:]
    changed = torch.zeros_like(images)
    source, target = _view_pixels(images), _view_pixels(changed)
    ups, lefts = shifts[0].clamp(-height, height).tolist(), shifts[1].clamp(-width, width).tolist()
    for index, (up, left, is_flip) in enumerate(zip(ups, lefts, is_mirrored.tolist(), strict=True)):
        part = source[index, ..., max(up, 0) : height + min(up, 0), max(left, 0) : width + min(left, 0)]
        if is_flip:
            part, left = part[..., ::-1], -left
        target[index, ..., max(-up, 0) : height - max(up, 0), max(-left, 0) : width - max(left, 0)] = part
    return changed


def _view_pixels(images: Tensor) -> np.ndarray[Any, Any]:
    """Return the memory of images as (n, channels, height, width), or (n, height, width) if it has whole pixels."""
    if images.is_contiguous() or not _is_channels_last(images):
        return images.numpy()
    rows = images.permute(0, 2, 3, 1).numpy()
    return rows.view(np.dtype((np.void, rows.itemsize * rows.shape[3])))[..., 0]


def gather_rows(images: Tensor, shifts: Tensor) -> Tensor:
    """Shift each image, all at once; for any device.

    A row of the result is one contiguous piece of memory in the padded image, which is copied as a whole.
    """
    size, channels, height, width = images.shape
    padding = int(shifts.abs().max()) if size else 0
    is_last = _is_channels_last(images)
    unit, planes = (channels, 1) if is_last else (1, channels)
    rows = images.permute(0, 2, 3, 1) if is_last else images
    border = (0, 0, padding, padding, padding, padding) if is_last else (padding, padding, padding, padding)
    padded = F.pad(rows, border).contiguous().view(-1)
    tall, wide = height + 2 * padding, width + 2 * padding
    pieces = padded.as_strided((padded.numel() // unit - width + 1, width * unit), (unit, 1))
    up, left = (shifts + padding).to(images.device)[:, :, None, None]
    plane = torch.arange(size * planes, device=images.device).view(size, planes, 1) * tall
    starts = (plane + up + torch.arange(height, device=images.device)) * wide + left
    taken = pieces.index_select(0, starts.view(-1))
    if is_last:
        return taken.view(size, height, width, channels).permute(0, 3, 1, 2)
    return taken.view(size, channels, height, width)


def _mirror_in_place(images: Tensor, is_mirrored: Tensor) -> Tensor:
    chosen = is_mirrored.nonzero()[:, 0].to(images.device)
    # in the order of memory, and only the chosen images, because mirroring is slow
    rows, axis = (images.permute(0, 2, 3, 1), 2) if _is_channels_last(images) else (images, 3)
    rows.index_copy_(0, chosen, rows.index_select(0, chosen).flip(axis))
    return images


def _is_channels_last(images: Tensor) -> bool:
    return images.is_contiguous(memory_format=torch.channels_last)
