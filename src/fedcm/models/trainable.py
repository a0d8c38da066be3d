"""Choose which parameters of a model are trained; the others are frozen."""

from collections.abc import Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

from torch import nn

from fedcm.errors import UserError


def select_trainable(model: nn.Module, patterns: Sequence[str]) -> None:
    """Train the parameters whose names match a pattern, and freeze all others, in place.

    Args:
        model: The model.
        patterns: Shell patterns, such as "head.*"; `*` also matches dots, and case matters.

    Raises:
        UserError: If a pattern matches no parameter, or one that has no gradient, such as a table of integers.
    """
    names = [name for name, _ in model.named_parameters()]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            nearest = ", ".join(get_close_matches(pattern.lower(), names, n=3, cutoff=0.0))
            raise UserError(
                f"the pattern {pattern!r} of trained parameters must match a parameter of the model "
                f"{type(model).__name__}, but matches none; the nearest names are {nearest}"
            )
    for name, parameter in model.named_parameters():
        chosen = any(fnmatchcase(name, pattern) for pattern in patterns)
        if chosen and not parameter.is_floating_point():
            raise UserError(
                f"trained parameters must be floats, but {name!r} has {parameter.dtype}; choose patterns without it"
            )
        parameter.requires_grad_(chosen)
