"""Share one dataset between the processes of a run: rank 0 loads it, and its workers map the same memory pages.

Every array is an .npy in a memfd, a file without a name, which the system frees when the last process that uses it
ends. The workers inherit the descriptors. The first descriptor refers to a description of the dataset in JSON.
"""

import contextlib
import dataclasses
import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from fedcm.data.dataset import Dataset, Examples, Normalisation
from fedcm.data.federated import ArrayData, FederatedData
from fedcm.data.structures.ragged import Ragged
from fedcm.data.structures.tree import describe_tree, iterate_tensors, rebuild_tree

Descriptors = tuple[int, ...]


def share_dataset(data: FederatedData) -> Descriptors:
    """Move a dataset into shared memory.

    Returns:
        The descriptors to pass to workers. Empty if there is nothing to share (the data are mapped from files, or
        created on demand), the system has no memfd, or there is no memory for a copy; then each worker loads the data.
    """
    if not isinstance(data, ArrayData) or data.dataset.mapped or data.dataset.reread or not hasattr(os, "memfd_create"):
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
    parts = {part: _rebuild_examples(part, own, arrays) for part, own in fields.pop("structure").items()}
    scale = fields.pop("normalisation")
    return Dataset(
        train=parts["train"],
        test=parts.get("test"),
        validation=parts.get("validation"),
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


def _list_parts(dataset: Dataset) -> dict[str, Examples]:
    own = {"train": dataset.train, "test": dataset.test, "validation": dataset.validation}
    return {part: examples for part, examples in own.items() if examples is not None}


def _rebuild_examples(part: str, structure: dict[str, Any], arrays: dict[str, np.ndarray]) -> Examples:
    def make_leaf(path: str, description: Mapping[str, Any]) -> Any:
        if description["ragged"]:
            return Ragged(*(torch.from_numpy(arrays[f"{path}.{name}"]) for name in ("values", "lengths")))
        return torch.from_numpy(arrays[path])

    return Examples(*(rebuild_tree(structure[field], make_leaf, f"{part}_{field}") for field in Examples._fields))


def _collect_arrays(dataset: Dataset) -> dict[str, np.ndarray]:
    arrays = {
        path: tensor.contiguous().numpy()
        for part, examples in _list_parts(dataset).items()
        for field, tree in zip(Examples._fields, examples, strict=True)
        for path, tensor in iterate_tensors(tree, f"{part}_{field}")
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
        "structure": {
            part: {field: describe_tree(tree) for field, tree in zip(Examples._fields, examples, strict=True)}
            for part, examples in _list_parts(dataset).items()
        },
    }


def _make_descriptor_path(descriptor: int) -> str:
    return f"/proc/self/fd/{descriptor}"
