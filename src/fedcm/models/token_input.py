"""The checks and the output shape that all models of sequences share."""

from torch import Tensor

from fedcm.errors import UserError

OUTPUTS = ("all", "last")


def check_sequence_options(
    input_shape: tuple[int, ...], classes: int, vocabulary: int, outputs: str, **sizes: int
) -> tuple[int, int]:
    """Return the length of a sequence and the number of token ids.

    Args:
        input_shape: The shape of one example.
        classes: The number of classes.
        vocabulary: The number of token ids; 0 for the number of classes.
        outputs: One of `OUTPUTS`.
        **sizes: Options that must be at least 1.

    Raises:
        UserError: If the examples are not sequences, or an option has a value that is not allowed.
    """
    if len(input_shape) != 1:
        raise UserError(
            f"this model needs sequences of token ids (length,), but the data have shape {input_shape}; use a model of "
            "images, or 'mlp' or 'linear'"
        )
    for option, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise UserError(f"model.{option} must be a whole number of at least 1, got {size!r}")
    if isinstance(vocabulary, bool) or not isinstance(vocabulary, int) or vocabulary < 0:
        raise UserError(f"model.vocabulary must be a whole number, 0 for the number of classes, got {vocabulary!r}")
    if outputs not in OUTPUTS:
        raise UserError(f'model.outputs must be "all" or "last", got {outputs!r}')
    return input_shape[0], vocabulary or classes


def check_tokens(tokens: Tensor) -> None:
    """Raise UserError if a batch does not consist of integers."""
    if tokens.is_floating_point():
        raise UserError(
            f"this model needs token ids, but the features are {str(tokens.dtype).removeprefix('torch.')} numbers; "
            "give integers of 16 bits or more, or use the model 'mlp' or 'linear'"
        )


def select_outputs(logits: Tensor, outputs: str) -> Tensor:
    """Return the logits (b, L, classes) as (b, classes, L) for "all", or of the last position, (b, classes)."""
    return logits.transpose(1, 2) if outputs == "all" else logits[:, -1]
