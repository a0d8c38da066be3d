"""Deal an experiment's data out to sites, one .npz file each, to try a federation before the real data are available.

In the order of their names, the sites are the clients of the simulation. So `fedcm run` of the same experiment and the
federation end with the same bits.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from fedcm.config.sections import Experiment
from fedcm.data import load_dataset
from fedcm.data.dataset import Dataset, Examples
from fedcm.data.federated import ArrayData, prepare_features
from fedcm.errors import UserError
from fedcm.federation.file_modes import private_files
from fedcm.runs.data_split import make_federated_data
from fedcm.system.files import atomic_write


class SiteFiles(NamedTuple):
    """The files that were written, and what the federation needs to repeat the simulation."""

    files: list[Path]
    settings: list[str]  # for `--set` of `fedcm federation run`, to end with the bits of the simulation


@private_files()
def deal(experiment: Experiment, sites: Sequence[str], folder: Path, data_dir: Path | None = None) -> SiteFiles:
    """Write one file per client of the experiment's split, and `test.npz` and `validation.npz` if there are such sets.

    Args:
        experiment: The experiment that names the data and the split.
        sites: One name per client; by default site-1, site-2, ….
        folder: Where the files are written.
        data_dir: Where data sets are stored.

    Raises:
        UserError: If the names do not fit the split, or a site would have the file of a held-out set.
    """
    data = load_dataset(experiment.data.source, data_dir)
    if not data.train.is_simple:
        raise UserError(
            "only data of one tensor of features and one of labels can be written as .npz files, got a structure; let "
            "each site's settings name a function that returns its data"
        )
    whole = experiment.evaluation.model_copy(update={"clients": None})  # sites hold back their own test data
    clients = make_federated_data(experiment.model_copy(update={"evaluation": whole}), data)
    assert isinstance(clients, ArrayData)
    names = sorted(sites) or [f"site-{k + 1:0{len(str(clients.population))}d}" for k in range(clients.population)]
    if len(names) != clients.population or len(set(names)) != len(names):
        raise UserError(
            f"the split has {clients.population} clients and needs as many different sites, got {len(names)}"
        )
    held_out = _list_held_out(data, clients)
    for kind in held_out:
        if kind in [name.casefold() for name in names]:
            raise UserError(
                f"a site must not be named {kind!r}, because {kind}.npz holds the {kind} set; give another name"
            )
    files = []
    for client, name in enumerate(names):
        index = clients.order[int(clients.offsets[client]) : int(clients.offsets[client + 1])]
        files.append(_write(folder / f"{name}.npz", data.train.select(index), data))
    files += [_write(folder / f"{kind}.npz", examples, data) for kind, examples in held_out.items()]
    return SiteFiles(files, _make_settings(data))


def _list_held_out(data: Dataset, clients: ArrayData) -> dict[str, Examples]:
    """The raw examples for the server's kit: its test set and its validation set."""
    validation, index = data.validation, clients.validation_index
    if index is not None:
        validation = data.train.select(index)
    return {kind: part for kind, part in (("test", data.test), ("validation", validation)) if part is not None}


def _write(path: Path, examples: Examples, data: Dataset) -> Path:
    features = examples.features
    if not _can_sites_normalise(data):
        features = prepare_features(features, data.normalisation, torch.float32, "contiguous")
    with atomic_write(path) as temporary:
        np.savez(temporary, x=features.numpy(), y=examples.labels.numpy())
    return path


def _can_sites_normalise(data: Dataset) -> bool:
    """Return whether sites would normalise the unchanged features in the same way as the simulation."""
    return data.normalisation is None or data.normalisation.scale == 255.0


def _make_settings(data: Dataset) -> list[str]:
    labels_show_classes = data.classes is None or int(data.train.labels.max()) + 1 == data.classes
    settings = [] if labels_show_classes else [f"federation.classes={data.classes}"]
    if data.normalisation is not None and _can_sites_normalise(data):
        settings += [f"federation.{name}={list(getattr(data.normalisation, name))}" for name in ("mean", "std")]
    return settings
