"""The check of the input shape that all image models share."""

from fedcm.errors import UserError


def check_image_shape(input_shape: tuple[int, ...], min_size: int) -> tuple[int, int, int]:
    """Return (channels, height, width).

    Raises:
        UserError: If the examples are not images, or the images are smaller than `min_size` × `min_size`.
    """
    if len(input_shape) != 3:
        raise UserError(
            f"this model needs images (channels, height, width), but the data have shape {input_shape}; "
            "use the model 'mlp' or 'linear'"
        )
    channels, height, width = input_shape
    if min(height, width) < min_size:
        alternatives = "'resnet8', 'mlp' or 'linear'" if min(height, width) >= 8 else "'mlp' or 'linear'"
        raise UserError(
            f"this model needs images of at least {min_size}×{min_size}, but the data are {height}×{width}; "
            f"use the model {alternatives}"
        )
    return channels, height, width
