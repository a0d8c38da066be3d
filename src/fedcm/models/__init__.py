"""Models for classification and regression, built by name.

A model that is not in `MODELS` is given by its import path, `package.module:factory`. The command `fedcm models` shows
the docstring of each factory, so these docstrings say what the model is.
"""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from fedcm.errors import UserError, suggest
from fedcm.models.cnn import cnn, lenet, lenet_wide
from fedcm.models.linear import linear
from fedcm.models.lstm import lstm
from fedcm.models.mlp import mlp
from fedcm.models.resnet import resnet8, resnet18, resnet18_imagenet_stem
from fedcm.models.transformer import transformer
from fedcm.system.error_messages import describe_error
from fedcm.system.imports import import_object

__all__ = ["MODELS", "build_model", "reject_unknown_model"]

MODELS: dict[str, Callable[..., nn.Module]] = {
    "linear": linear,
    "mlp": mlp,
    "lenet": lenet,
    "lenet-wide": lenet_wide,
    "cnn": cnn,
    "resnet8": resnet8,
    "resnet18": resnet18,
    "resnet18-imagenet-stem": resnet18_imagenet_stem,
    "lstm": lstm,
    "transformer": transformer,
}


def build_model(
    name: str, input_shape: tuple[int, ...], classes: int, options: dict[str, Any], torch_seed: int
) -> nn.Module:
    """Build a model; its initial parameters depend on the seed alone, and torch's global generator is not changed.

    A user's factory is called with `options`, and with `input_shape` and `classes` if it has parameters of these names.

    Args:
        name: A key of `MODELS`, or `package.module:factory`.
        input_shape: The shape of one example.
        classes: The number of outputs; for a regression, the number of values per example.
        options: Keyword arguments of the factory.
        torch_seed: The seed of the initial parameters.

    Raises:
        UserError: If there is no such model or option, or the factory fails or returns no module.
    """
    reject_unknown_model(name)
    factory = MODELS[name] if name in MODELS else import_object(name)
    if not callable(factory):
        raise UserError(f"the model {name!r} must be a function or class that returns an nn.Module, got {factory!r}")
    arguments = {"input_shape": input_shape, "classes": classes}
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):
        parameters = {}
    known = [key for key in parameters if key not in arguments]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for key in options:
        if key not in known and not takes_any:
            raise UserError(f"the model {name!r} has no option {key!r}; {suggest(key, known)}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_seed)
        try:
            model = factory(**{key: value for key, value in arguments.items() if key in parameters}, **options)
        except (Exception, SystemExit) as error:  # the user's code can raise anything
            if isinstance(error, UserError):
                raise
            raise UserError(f"the model {name!r} could not be built: {describe_error(error)}") from error
    if not isinstance(model, nn.Module):
        raise UserError(f"the model {name!r} must return an nn.Module, got {type(model).__name__}")
    return model


def reject_unknown_model(name: str) -> None:
    """Raise UserError if `name` is neither in `MODELS` nor an import path."""
    if name not in MODELS and ":" not in name:
        raise UserError(
            f"there is no model {name!r}; write your own as 'package.module:factory'; {suggest(name, MODELS)}"
        )
