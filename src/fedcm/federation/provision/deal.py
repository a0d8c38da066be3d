"""An experiment's data dealt out to sites: one .npz each, to try a federation with before the real data are there.

Site by site and in the order of their names these are the clients of the simulation, so that `fedcm run` of the same
experiment and the federation end with the same bits.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from fedcm.config.experiment import Experiment
from fedcm.data import load
from fedcm.data.dataset import Dataset, Examples
from fedcm.data.federated import ArrayData, ready
from fedcm.errors import UserError
from fedcm.runs.assembly import federated
from fedcm.system.files import atomic_write


class Dealt(NamedTuple):
    files: list[Path]
    settings: list[str]  # to be given to the federation with `--set`, for the bits of the simulation


def deal(experiment: Experiment, sites: Sequence[str], folder: Path, data_dir: Path | None = None) -> Dealt:
    data = load(experiment.data.source, data_dir)
    clients = federated(experiment, data)
    assert isinstance(clients, ArrayData)
    names = sorted(sites) or [f"site-{k + 1:0{len(str(clients.population))}d}" for k in range(clients.population)]
    if len(names) != clients.population or len(set(names)) != len(names):
        raise UserError(f"there must be a site for each of the split's {clients.population} clients, got {len(names)}")
    files = []
    for client, name in enumerate(names):
        index = clients.order[int(clients.offsets[client]) : int(clients.offsets[client + 1])]
        files.append(_write(folder / f"{name}.npz", Examples(*[part[index] for part in data.train]), data))
    if data.test is not None:
        files.append(_write(folder / "test.npz", data.test, data))
    return Dealt(files, _settings(data))


def _write(path: Path, examples: Examples, data: Dataset) -> Path:
    features = examples.features
    if not _found_again(data):
        features = ready(features, data.normalisation, torch.float32, "contiguous")
    with atomic_write(path) as temporary:
        np.savez(temporary, x=features.numpy(), y=examples.labels.numpy())
    return path


def _found_again(data: Dataset) -> bool:
    """Would sites that hold these features as they are normalise them in the same way?"""
    return data.normalisation is None or data.normalisation.scale == 255.0


def _settings(data: Dataset) -> list[str]:
    told = data.classes is None or int(data.train.labels.max()) + 1 == data.classes  # by the labels themselves
    settings = [] if told else [f"federation.classes={data.classes}"]
    if data.normalisation is not None and _found_again(data):
        settings += [f"federation.{name}={list(getattr(data.normalisation, name))}" for name in ("mean", "std")]
    return settings
