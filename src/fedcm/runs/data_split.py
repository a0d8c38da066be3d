"""Distribute a dataset over the clients of an experiment: validation data, split, clients' own test data."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from fedcm.config.choices import IN_MEMORY
from fedcm.config.sections import Experiment
from fedcm.core.losses import (
    is_one_hot,
)
from fedcm.data.client_tests import hold_out_of_clients
from fedcm.data.dataset import ClientsOnDemand, Dataset, Examples
from fedcm.data.federated import ArrayData, FederatedData
from fedcm.data.on_demand import OnDemandData
from fedcm.data.partition import IID, Natural, Parts, Split, split_by_owner
from fedcm.data.validation import HeldBack, hold_back
from fedcm.errors import UserError
from fedcm.rng import Purpose, make_generator


def make_federated_data(experiment: Experiment, source: Dataset | ClientsOnDemand) -> FederatedData:
    """Distribute a dataset over clients as the experiment says. Clients on demand bring their own split."""
    share = experiment.data.validation
    if not isinstance(source, ClientsOnDemand):
        held_back = draw_validation(experiment.split, source, experiment.seed, share)
        parts = draw_split(experiment.split, source, experiment.seed, held_back and held_back.remaining)
        if (own := experiment.evaluation.clients) is None:
            return ArrayData(source, parts, held_back=held_back and held_back.validation)
        divided = hold_out_of_clients(parts, own, experiment.seed)
        return ArrayData(
            source, divided.training, held_back=held_back and held_back.validation, client_tests=divided.tests
        )
    if experiment.evaluation.clients is not None:
        raise UserError(
            "every client is evaluated with evaluation.clients, and clients on demand are too many for that; leave it "
            "out"
        )
    if share is not None:
        raise UserError(
            f"clients on demand bring their own validation data, so data.validation cannot be a share of them, got "
            f"{share}; give ClientsOnDemand validation examples"
        )
    if not isinstance(experiment.split, Natural):
        raise UserError(
            "clients on demand bring their own split, so split.kind must be 'natural', got "
            f"{type(experiment.split).__name__}; leave [split] out"
        )
    name = experiment.data.source
    return OnDemandData(source) if name == IN_MEMORY else OnDemandData(source, name)


def draw_validation(split: Split, dataset: Dataset, seed: int, share: float | None) -> HeldBack | None:
    """Draw which training examples are held back for validation; None without a share.

    Raises:
        UserError: If nothing would be held back, or the data have a validation set already.
    """
    if share is None:
        return None
    if dataset.validation is not None:
        raise UserError(
            f"the data have {dataset.validation.size} validation examples already, so data.validation must be left "
            f"out, got {share}"
        )
    return hold_back(dataset.train.size, share, seed, dataset.owners if isinstance(split, Natural) else None)


def draw_split(split: Split, dataset: Dataset, seed: int, remaining: np.ndarray | None = None) -> Parts:
    """Return the indices of the training examples of each client.

    Args:
        split: How the examples are split.
        dataset: The dataset.
        seed: The seed of the experiment.
        remaining: The examples to split, if some are held back; by default all.

    Raises:
        UserError: If the labels do not allow this split, or there are too few examples.
    """
    if remaining is not None:
        parts = draw_split(split, _select_examples(dataset, remaining), seed)
        return [remaining[part] for part in parts]
    if isinstance(split, Natural) and dataset.owners is not None:
        return split_by_owner(dataset.owners)
    raw, size = dataset.train.labels, dataset.train.size
    hint = "; for one-hot labels give their argmax" if is_one_hot(raw) else ""
    if not isinstance(raw, Tensor):
        if not isinstance(split, IID | Natural):
            raise UserError(
                "a split by label needs one label per example, got labels of several tensors or of unequal lengths; "
                "use split.kind = 'iid' or 'natural'"
            )
        return split.partition(np.zeros(size, np.int64), make_generator(seed, Purpose.SPLIT))
    labels = raw.numpy()
    if dataset.classes is None:
        if not isinstance(split, IID | Natural):
            raise UserError(
                "float labels can only be split 'iid' or 'natural'; if they are classes, make them integers" + hint
            )
        labels = np.zeros(size, np.int64)
    if labels.size > len(labels) and not isinstance(split, IID | Natural):
        raise UserError(
            "a split by label needs one label per example, got labels of shape "
            f"{tuple(dataset.train.labels.shape)}; use split.kind = 'iid' or 'natural'{hint}"
        )
    return split.partition(labels.reshape(len(labels), -1)[:, 0], make_generator(seed, Purpose.SPLIT))


def _select_examples(dataset: Dataset, index: np.ndarray) -> Dataset:
    """Return a dataset with the labels and owners of these examples; a split does not look at features."""
    labels = dataset.train.select(torch.from_numpy(index)).labels if not dataset.train.is_simple else None
    if labels is None:
        assert isinstance(dataset.train.labels, Tensor)
        labels = dataset.train.labels[torch.from_numpy(index)]
    owners = None if dataset.owners is None else dataset.owners[index]
    return replace(dataset, train=Examples(labels, labels), owners=owners)
