"""A vector on its way between server and site: as it is, or rounded to half the bytes.

exact       the numbers as they are
float16     11 bits of precision, up to 65504: what is larger becomes infinite and is refused at the other end
bfloat16    8 bits of precision, the range of float32; numpy has no such type, so its bits travel as uint16
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedcm.config.experiment import FederationSection, Link
from fedcm.federation.frames import Arrays


def packed(vector: Tensor, link: Link) -> np.ndarray:
    vector = vector.detach().cpu()
    match link:
        case "exact":
            return vector.numpy()
        case "float16":
            return vector.to(torch.float16).numpy()
        case "bfloat16":
            return vector.to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)


def unpacked(array: np.ndarray, link: Link, dtype: torch.dtype) -> Tensor:
    if link == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16).to(dtype)
    return torch.from_numpy(array).to(dtype)


def wire_type(link: Link, dtype: torch.dtype) -> np.dtype:
    """What an array that comes over this link must be made of."""
    return packed(torch.empty(0, dtype=dtype), link).dtype


def packed_broadcast(sent: Any, settings: FederationSection) -> Arrays:
    """The fields of what an algorithm sends down."""
    return {
        name: packed(vector, settings.downlink if name == "params" else settings.momentum)
        for name, vector in zip(sent._fields, sent, strict=True)
    }


def unpacked_broadcast(
    kind: type, arrays: Mapping[str, np.ndarray], settings: FederationSection, dtype: torch.dtype
) -> Any:
    return kind(
        **{
            name: unpacked(array, settings.downlink if name == "params" else settings.momentum, dtype)
            for name, array in arrays.items()
        }
    )


def packed_report(report: Any, settings: FederationSection) -> Arrays:
    return {name: packed(vector, settings.uplink) for name, vector in zip(report._fields, report, strict=True)}


def size_in_bytes(arrays: Mapping[str, np.ndarray]) -> int:
    return sum(array.nbytes for array in arrays.values())
