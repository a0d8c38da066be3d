"""A dataset in memory that processes share: the first one loads it, and those that it starts map the very same pages.

Every array is an .npy in a memfd, a file without a name: the system frees it with the last process that has it, however
that process ends. The processes inherit the descriptors, and the first of them leads to a table of contents in JSON.
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


def share(data: FederatedData) -> Descriptors:
    """Move what these data hold into shared memory; nothing where nothing is held, or the system has no memfd."""
    if not isinstance(data, ArrayData) or data.dataset.mapped or not hasattr(os, "memfd_create"):
        return ()
    written: dict[str, int] = {}
    try:
        for name, array in _arrays(data.dataset).items():
            written[name] = os.memfd_create(f"fedcm-{name}")
            with open(written[name], "wb", closefd=False) as file:
                np.save(file, array, allow_pickle=False)
        contents = os.memfd_create("fedcm-contents")
    except OSError:  # no memory for a copy: each process loads its own
        close_shared(tuple(written.values()))
        return ()
    with open(contents, "wb", closefd=False) as file:
        file.write(json.dumps(_description(data.dataset) | {"arrays": written}).encode())
    data.dataset = open_shared(contents)
    return contents, *written.values()


def open_shared(contents: int) -> Dataset:
    """The dataset that another process, or this one, shares by these contents."""
    with open(_path(contents), "rb") as file:  # noqa: PTH123
        said: dict[str, Any] = json.load(file)
    # copy on write: pages are shared by all who read, and torch gets the writable memory it asks for
    arrays = {name: np.load(_path(number), mmap_mode="c") for name, number in said.pop("arrays").items()}
    parts = {
        part: Examples(*(torch.from_numpy(arrays[f"{part}_{field}"]) for field in Examples._fields))
        for part in ("train", "test")
        if f"{part}_features" in arrays
    }
    scale = said.pop("normalisation")
    return Dataset(
        train=parts["train"],
        test=parts.get("test"),
        owners=arrays.get("owners"),
        normalisation=scale and Normalisation(tuple(scale["mean"]), tuple(scale["std"]), scale["scale"]),
        client_names=tuple(said.pop("client_names")),
        mapped=True,
        **said,
    )


def close_shared(descriptors: Descriptors) -> None:
    """What is mapped stays mapped."""
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)


def _arrays(dataset: Dataset) -> dict[str, np.ndarray]:
    parts = {"train": dataset.train} | ({} if dataset.test is None else {"test": dataset.test})
    arrays = {
        f"{part}_{field}": getattr(examples, field).contiguous().numpy()
        for part, examples in parts.items()
        for field in Examples._fields
    }
    return arrays if dataset.owners is None else arrays | {"owners": dataset.owners}


def _description(dataset: Dataset) -> dict[str, Any]:
    scale = dataset.normalisation
    return {
        "name": dataset.name,
        "classes": dataset.classes,
        "normalisation": None if scale is None else dataclasses.asdict(scale),
        "client_names": dataset.client_names,
        "checksums": dataset.checksums,
    }


def _path(descriptor: int) -> str:
    return f"/proc/self/fd/{descriptor}"
