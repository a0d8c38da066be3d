"""Rows of splits: which client holds which examples, and that clients train on their own examples."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import literal
import numpy as np
import torch
from bench import CLASSES, Bench, Trained, assert_different, assert_literal_trajectory

Shows = Callable[[Trained, Any], None]  # given the run and the setting's value
EXAMPLES = 240


def deals(shows: Shows, *values: Any, default: Any = None) -> Callable[[Bench, str], None]:
    """Every example goes to one client, and the run is the literal run on these clients. Without the setting, the
    run is the same as with its default."""

    def row(bench: Bench, setting: str) -> None:
        runs = []
        for value in values:
            trained = _train_split(bench, setting, value)
            held = torch.cat([features for features, _ in trained.clients])
            assert sorted(held.tolist()) == sorted(np.load(trained.table["data"]["source"])["x_train"].tolist())
            assert_literal_trajectory(trained, trained.clients)
            shows(trained, value)
            runs.append(trained)
        for one, other in pairwise(runs):
            assert_different(one, other)
        if default is not None:
            given, left_out = (_train_split(bench, setting, value) for value in (default, None))
            assert torch.equal(given.params, left_out.params)

    return row


def _train_split(bench: Bench, setting: str, value: Any) -> Trained:
    kind, field = setting.split(".")[1:]
    split = {"kind": kind, "clients": 12} | ({field: value} if value is not None else {})
    return bench.train(bench.table(data={"source": bench.whole_file("whole")}, split=split))


def keeps_the_natural_split(bench: Bench, setting: str) -> None:
    for table in (bench.table(), bench.table(split={"kind": "natural"})):  # the default too
        trained = bench.train(table)
        for (x, y), (own_x, own_y) in zip(bench.clients, trained.clients, strict=True):
            assert torch.equal(x, own_x)
            assert torch.equal(y, own_y)
        assert_literal_trajectory(trained, bench.clients)


def shuffles(trained: Trained, clients: int) -> None:
    """A permutation by the seed, cut into equal parts."""
    whole = np.load(trained.table["data"]["source"])
    order = literal.generator(trained.table["seed"], literal.SPLIT).permutation(EXAMPLES)
    for (x, y), part in zip(trained.clients, np.array_split(order, clients), strict=True):
        assert np.array_equal(x.numpy(), whole["x_train"][part])
        assert y.tolist() == whole["y_train"][part].tolist()


def has_this_number_of_clients(trained: Trained, clients: int) -> None:
    assert len(trained.clients) == clients


def has_equal_sizes(trained: Trained, clients: int) -> None:
    has_this_number_of_clients(trained, clients)
    sizes = _count_labels(trained).sum(1)
    assert sizes.max() - sizes.min() <= 1


def mixes_labels(trained: Trained, concentration: float) -> None:
    """The smaller the concentration, the more examples of a client share one label."""
    has_equal_sizes(trained, 12)
    counts = _count_labels(trained)
    most = (counts / counts.sum(1, keepdims=True)).max(1).mean()
    assert _is_within(most, {0.01: (0.52, 1.0), 1000.0: (0.25, 0.48)}[concentration])


def mixes_sizes(trained: Trained, concentration: float) -> None:
    """The smaller the concentration, the more the clients' sizes differ."""
    sizes = _count_labels(trained).sum(1)
    assert _is_within(sizes.std() / sizes.mean(), {0.1: (0.7, 4.0), 1000.0: (0.0, 0.15)}[concentration])


def holds_at_least(trained: Trained, least: int) -> None:
    sizes = _count_labels(trained).sum(1)
    assert sizes.min() >= least
    assert (sizes.min() < 12) == (least < 12), "a smaller minimum must lead to smaller clients"


def holds_shards(trained: Trained, per_client: int) -> None:
    """A shard of examples sorted by label has one label, or two where it crosses from one to the next."""
    labels = (_count_labels(trained) > 0).sum(1)
    assert labels.max() <= 2 * per_client
    assert _is_within(labels.mean(), {1: (1.0, 1.4), 5: (2.5, 4.0)}[per_client])


def _count_labels(trained: Trained) -> np.ndarray:
    """(clients, classes)"""
    return np.stack([np.bincount(labels.numpy(), minlength=CLASSES) for _, labels in trained.clients])


def _is_within(number: float, limits: tuple[float, float]) -> bool:
    assert limits[0] <= number <= limits[1], f"{number:.3g} is not within {limits}"
    return True
