"""What the image models ask of their input."""

from fedcm.errors import UserError


def image_shape(input_shape: tuple[int, ...], least: int) -> tuple[int, int, int]:
    """(channels, height, width), refused where the model could not work on it."""
    if len(input_shape) != 3:
        raise UserError(
            f"this model takes images (channels, height, width), and the data have shape {input_shape}; "
            "use the model 'mlp' or 'linear'"
        )
    channels, height, width = input_shape
    if min(height, width) < least:
        smaller = "'resnet8', 'mlp' or 'linear'" if min(height, width) >= 8 else "'mlp' or 'linear'"
        raise UserError(
            f"this model takes images of at least {least}×{least}, and the data are {height}×{width}; "
            f"use the model {smaller}"
        )
    return channels, height, width
