"""The models by name; any other is named by its import path, `package.module:factory`."""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from fedcm.errors import UserError, suggest
from fedcm.models.cnn import cnn, lenet
from fedcm.models.linear import linear
from fedcm.models.mlp import mlp
from fedcm.models.resnet import resnet8, resnet18, resnet18_imagenet_stem
from fedcm.system.faults import describe_error
from fedcm.system.imports import import_path

MODELS: dict[str, Callable[..., nn.Module]] = {
    "linear": linear,
    "mlp": mlp,
    "lenet": lenet,
    "cnn": cnn,
    "resnet8": resnet8,
    "resnet18": resnet18,
    "resnet18-imagenet-stem": resnet18_imagenet_stem,
}


def build_model(
    name: str, input_shape: tuple[int, ...], classes: int, options: dict[str, Any], torch_seed: int
) -> nn.Module:
    """The model with its initial parameters, a function of the seed; torch's own generator stays as it was.

    A factory of the user's is called with the experiment's options, and with `input_shape` and `classes` where it has
    parameters of these names. `classes` is the number of outputs: for a regression, of numbers per example.
    """
    reject_unknown_model(name)
    factory = MODELS[name] if name in MODELS else import_path(name)
    if not callable(factory):
        raise UserError(f"the model {name!r} must be a function or class that returns an nn.Module, got {factory!r}")
    given = {"input_shape": input_shape, "classes": classes}
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):
        parameters = {}
    known = [key for key in parameters if key not in given]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for key in options:
        if key not in known and not takes_any:
            raise UserError(f"the model {name!r} has no option {key!r}; {suggest(key, known)}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_seed)
        try:
            model = factory(**{key: value for key, value in given.items() if key in parameters}, **options)
        except (Exception, SystemExit) as error:  # the user's own code: anything can come out of it
            if isinstance(error, UserError):
                raise
            raise UserError(f"the model {name!r} could not be made: {describe_error(error)}") from error
    if not isinstance(model, nn.Module):
        raise UserError(f"the model {name!r} must return an nn.Module, got {type(model).__name__}")
    return model


def reject_unknown_model(name: str) -> None:
    if name not in MODELS and ":" not in name:
        raise UserError(f"there is no model {name!r}; {suggest(name, MODELS)}; your own is 'package.module:factory'")
