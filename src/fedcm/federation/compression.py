"""Convert vectors for the network: send them exactly, or round them to half the bytes.

exact       the numbers unchanged
float16     11 bits of precision, up to 65504; larger numbers become infinite and the receiver rejects them
bfloat16    8 bits of precision and the range of float32; numpy has no bfloat16, so its bits are sent as uint16
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedcm.config.sections import FederationSection, Link
from fedcm.federation.frames import Arrays


def pack(vector: Tensor, link: Link) -> np.ndarray:
    """Convert a vector to the array that is sent."""
    vector = vector.detach().cpu()
    match link:
        case "exact":
            return vector.numpy()
        case "float16":
            return vector.to(torch.float16).numpy()
        case "bfloat16":
            return vector.to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)


def unpack(array: np.ndarray, link: Link, dtype: torch.dtype) -> Tensor:
    """Convert a received array back to a vector."""
    if link == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16).to(dtype)
    return torch.from_numpy(array).to(dtype)


def get_wire_dtype(link: Link, dtype: torch.dtype) -> np.dtype:
    """Return the dtype of the arrays that `pack` makes of vectors of `dtype`."""
    return pack(torch.empty(0, dtype=dtype), link).dtype


def pack_broadcast(sent: Any, settings: FederationSection) -> Arrays:
    """Pack every field of an algorithm's broadcast."""
    return {
        name: pack(vector, settings.downlink if name == "params" else settings.momentum)
        for name, vector in zip(sent._fields, sent, strict=True)
    }


def unpack_broadcast(
    kind: type, arrays: Mapping[str, np.ndarray], settings: FederationSection, dtype: torch.dtype
) -> Any:
    """Build an algorithm's broadcast, of type `kind`, from received arrays."""
    return kind(
        **{
            name: unpack(array, settings.downlink if name == "params" else settings.momentum, dtype)
            for name, array in arrays.items()
        }
    )


def pack_report(report: Any, settings: FederationSection) -> Arrays:
    """Pack every field of an algorithm's report."""
    return {name: pack(vector, settings.uplink) for name, vector in zip(report._fields, report, strict=True)}


def count_array_bytes(arrays: Mapping[str, np.ndarray]) -> int:
    """Return the total size of the arrays in bytes."""
    return sum(array.nbytes for array in arrays.values())
