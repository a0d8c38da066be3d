"""Write tensors as safetensors files."""

from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor


def save_tensors(tensors: Mapping[str, Tensor], path: Path, metadata: dict[str, str] | None = None) -> None:
    """Write tensors to a safetensors file.

    Args:
        tensors: The tensors by name; two names may share memory.
        path: The file.
        metadata: Texts to store beside the tensors.

    Raises:
        OSError: If the file cannot be written, most often because the disk is full.
    """
    separate: dict[str, Tensor] = {}
    memories: set[int] = set()
    for name, tensor in tensors.items():  # the format does not allow two names for the same memory
        memory = tensor.untyped_storage().data_ptr()
        separate[name] = tensor.detach().clone() if memory in memories else tensor.detach().cpu().contiguous()
        memories.add(memory)
    try:
        save_file(separate, path, metadata)
    except SafetensorError as error:
        raise OSError(f"{path.parent} cannot be written: {error}") from None
