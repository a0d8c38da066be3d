"""Share one dataset between the processes of a run: rank 0 loads it, and its workers map the same memory pages.

Every array is an .npy in a memfd, a file without a name, which the system frees when the last process that uses it
ends. The workers inherit the descriptors. The first descriptor refers to a description of the dataset in JSON.
"""

import contextlib
import dataclasses
import json
import os
from typing import Any

import numpy as np
import torch

from fedcm.data.dataset import Dataset, Examples, Normalisation
from fedcm.data.federated import ArrayData, FederatedData

Descriptors = tuple[int, ...]


def share_dataset(data: FederatedData) -> Descriptors:
    """Move a dataset into shared memory.

    Returns:
        The descriptors to pass to workers. Empty if there is nothing to share (the data are mapped from files, or
        created on demand), the system has no memfd, or there is no memory for a copy; then each worker loads the data.
    """
    if not isinstance(data, ArrayData) or data.dataset.mapped or not hasattr(os, "memfd_create"):
        return ()
    written: dict[str, int] = {}
    try:
        for name, array in _collect_arrays(data.dataset).items():
            written[name] = os.memfd_create(f"fedcm-{name}")
            with open(written[name], "wb", closefd=False) as file:
                np.save(file, array, allow_pickle=False)
        description = os.memfd_create("fedcm-contents")
    except OSError:  # no memory for a copy
        close_descriptors(tuple(written.values()))
        return ()
    with open(description, "wb", closefd=False) as file:
        file.write(json.dumps(_describe_dataset(data.dataset) | {"arrays": written}).encode())
    data.dataset = open_shared_dataset(description)
    return description, *written.values()


def open_shared_dataset(description: int) -> Dataset:
    """Open the dataset that `share_dataset` has shared, by its first descriptor."""
    with open(_make_descriptor_path(description), "rb") as file:  # noqa: PTH123
        fields: dict[str, Any] = json.load(file)
    # copy on write: all readers share the pages, and torch gets the writable memory that it requires
    arrays = {
        name: np.load(_make_descriptor_path(descriptor), mmap_mode="c")
        for name, descriptor in fields.pop("arrays").items()
    }
    parts = {
        part: Examples(*(torch.from_numpy(arrays[f"{part}_{field}"]) for field in Examples._fields))
        for part in ("train", "test")
        if f"{part}_features" in arrays
    }
    scale = fields.pop("normalisation")
    return Dataset(
        train=parts["train"],
        test=parts.get("test"),
        owners=arrays.get("owners"),
        normalisation=scale and Normalisation(tuple(scale["mean"]), tuple(scale["std"]), scale["scale"]),
        client_names=tuple(fields.pop("client_names")),
        mapped=True,
        **fields,
    )


def close_descriptors(descriptors: Descriptors) -> None:
    """Close the descriptors; a dataset that has been opened stays usable."""
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)


def _collect_arrays(dataset: Dataset) -> dict[str, np.ndarray]:
    parts = {"train": dataset.train} | ({} if dataset.test is None else {"test": dataset.test})
    arrays = {
        f"{part}_{field}": getattr(examples, field).contiguous().numpy()
        for part, examples in parts.items()
        for field in Examples._fields
    }
    return arrays if dataset.owners is None else arrays | {"owners": dataset.owners}


def _describe_dataset(dataset: Dataset) -> dict[str, Any]:
    scale = dataset.normalisation
    return {
        "name": dataset.name,
        "classes": dataset.classes,
        "normalisation": None if scale is None else dataclasses.asdict(scale),
        "client_names": dataset.client_names,
        "checksums": dataset.checksums,
    }


def _make_descriptor_path(descriptor: int) -> str:
    return f"/proc/self/fd/{descriptor}"
