"""Choose parameters of a model by the patterns of their names: those that are trained, those that are personal."""

from collections.abc import Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn

from fedcm.errors import UserError


def select_trainable(model: nn.Module, patterns: Sequence[str]) -> None:
    """Train the parameters whose names match a pattern, and freeze all others, in place.

    Args:
        model: The model.
        patterns: Shell patterns, such as "head.*"; `*` also matches dots, and case matters.

    Raises:
        UserError: If a pattern matches no parameter, or one that has no gradient, such as a table of integers.
    """
    matching = _match_names(model, patterns, "trained")
    for name, parameter in model.named_parameters():
        chosen = name in matching
        if chosen and not parameter.is_floating_point():
            raise UserError(
                f"trained parameters must be floats, but {name!r} has {parameter.dtype}; choose patterns without it"
            )
        parameter.requires_grad_(chosen)


def select_personal(model: nn.Module, patterns: Sequence[str]) -> frozenset[str]:
    """Return the names of the trained parameters that match a pattern: each client has its own, and sends none of them.

    Args:
        model: The model.
        patterns: Shell patterns, as for `select_trainable`.

    Raises:
        UserError: If a pattern matches no parameter, all that match are frozen, or nothing would be shared.
    """
    matching = _match_names(model, patterns, "personal")
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    if not matching & trained:
        raise UserError(
            f"personal parameters must be trained, but all that match {list(patterns)} are frozen; train them or leave "
            "model.personal out"
        )
    if trained <= matching:
        raise UserError(
            f"some trained parameters must be shared, but all of them match the personal patterns {list(patterns)}"
        )
    return frozenset(matching & trained)


def load_personal(model: nn.Module, names: Sequence[str], personal: Tensor) -> None:
    """Load a client's personal vector into the parameters of these names, in place."""
    parameters = [model.get_parameter(name) for name in names]
    with torch.no_grad():
        for parameter, piece in zip(parameters, personal.split([p.numel() for p in parameters]), strict=True):
            parameter.copy_(piece.view(parameter.shape))


def _match_names(model: nn.Module, patterns: Sequence[str], kind: str) -> set[str]:
    """Return the names of the parameters that match a pattern; `kind` is what messages call these parameters."""
    names = [name for name, _ in model.named_parameters()]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            nearest = ", ".join(get_close_matches(pattern.lower(), names, n=3, cutoff=0.0))
            raise UserError(
                f"the pattern {pattern!r} of {kind} parameters must match a parameter of the model "
                f"{type(model).__name__}, but matches none; the nearest names are {nearest}"
            )
    return {name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)}
