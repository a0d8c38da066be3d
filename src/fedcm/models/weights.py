"""Load the weights of a safetensors file, or of a state dict, into a model.

Pickles (`.pt`, `.bin`) are rejected, because reading one can run code.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from fedcm.errors import UserError
from fedcm.system.files import find_wrong_kind

_PICKLES = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle")
_SHOWN = 3  # names in a message


def load_weights_file(model: nn.Module, path: Path, *, strict: bool = True) -> None:
    """Load the weights of a safetensors file into a model, in place.

    Args:
        model: The model.
        path: The file.
        strict: Whether the file must have exactly the names of the model's state dict. Otherwise names that only one
            of them has are left out.

    Raises:
        UserError: If the file cannot be read, or its names or shapes are not those of the model.
    """
    load_weights(model, _read_weights(path), where=str(path), strict=strict)


def load_weights(model: nn.Module, tensors: Mapping[str, Any], *, where: str, strict: bool = True) -> None:
    """Load tensors by name into a model, in place; `where` is what messages call them.

    Raises:
        UserError: If a value is no tensor, or the names or shapes are not those of the model.
    """
    own = {name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)}
    missing = [name for name in own if name not in tensors]
    unexpected = [name for name in tensors if name not in own]
    kind = type(model).__name__
    if strict and (missing or unexpected):
        parts = [("lack", missing), ("have besides", unexpected)]
        differences = " and ".join(f"{verb} {_shorten(names)}" for verb, names in parts if names)
        raise UserError(
            f"{where}: the weights must have the names of the model {kind}, but {differences}; turn "
            "weights_strict off to load only the common ones"
        )
    common = [name for name in own if name in tensors]
    if not common:
        raise UserError(
            f"{where}: the weights must have names of the model {kind}, such as {_shorten(own)}, but have none of them"
        )
    for name in common:
        given = tensors[name]
        if not isinstance(given, Tensor) or given.shape != own[name].shape:
            got = tuple(given.shape) if isinstance(given, Tensor) else type(given).__name__
            raise UserError(f"{where}: {name!r} must have the model's shape {tuple(own[name].shape)}, got {got}")
    reject_unusable_parameters({name: tensors[name] for name, _ in model.named_parameters() if name in common}, where)
    with torch.no_grad():
        for name in common:
            own[name].copy_(tensors[name])


def reject_unusable_parameters(parameters: Mapping[str, Tensor], where: str) -> None:
    """Raise UserError if a parameter is NaN or infinite; `where` is what the message calls all of them."""
    for name, value in parameters.items():
        if not is_lazy(value) and not bool(value.isfinite().all()):
            raise UserError(f"{where}: all weights must be finite numbers, but {name!r} has NaN or infinite ones")


def _read_weights(path: Path) -> dict[str, Tensor]:
    if path.suffix.lower() in _PICKLES:
        new = path.with_suffix(".safetensors").name
        raise UserError(
            f"weights must be a safetensors file, because reading a pickle can run code, got {str(path)!r}; convert "
            f"it: python -c \"import torch, safetensors.torch as s; s.save_file(torch.load('{path.name}', "
            f"weights_only=True), '{new}')\""
        )
    if wrong := find_wrong_kind(path):
        raise UserError(f"{wrong}; give a safetensors file of weights")
    try:
        return load_file(path)
    except FileNotFoundError:
        raise UserError(f"there is no file of weights {str(path)!r}; give a safetensors file") from None
    except (OSError, SafetensorError) as error:
        raise UserError(
            f"weights must be a safetensors file, and {str(path)!r} cannot be read as one: {error}"
        ) from None


def _shorten(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return ", ".join(map(repr, listed[:_SHOWN])) + more
