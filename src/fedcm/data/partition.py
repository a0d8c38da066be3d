"""Splits of a dataset over clients. Every example goes to exactly one client, and every split terminates.

`Split.partition` takes the labels and a generator, and returns one array of indices per client.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, final

import numpy as np

from fedcm.errors import UserError

Parts = list[np.ndarray]
"""For each client, the indices of its examples."""


class Split(Protocol):
    """A way to split a dataset over clients."""

    def partition(self, labels: np.ndarray, generator: np.random.Generator) -> Parts:
        """Assign every example to one client.

        Args:
            labels: (n,) The class of each example.
            generator: The source of randomness; the split is a function of it.

        Raises:
            UserError: If there are too few examples.
        """
        ...


@final
@dataclass(frozen=True)
class IID:
    """The examples are shuffled and cut into equal parts; if there is a remainder, the first clients get one more."""

    clients: int

    def __post_init__(self) -> None:
        _check_at_least_1(clients=self.clients)

    def partition(self, labels: np.ndarray, generator: np.random.Generator) -> Parts:
        _check_enough_examples(labels, self.clients)
        return np.array_split(generator.permutation(len(labels)), self.clients)


@final
@dataclass(frozen=True)
class Dirichlet:
    """The balanced split of the FedCM paper: client i draws q_i ~ Dir(concentration · 1), then its labels from q_i.

    All clients have the same size, up to one example. They draw in turns, one example each, so that all of them are
    equally likely to meet an empty class. When a class is empty, each q_i is renormalised over the remaining classes.
    If q_i has no mass there, the client draws in proportion to the remaining examples. In each turn, every client gets
    an example or a class becomes empty, so there are at most n/N + classes turns.
    """

    clients: int
    concentration: float = 0.6

    def __post_init__(self) -> None:
        _check_at_least_1(clients=self.clients)
        _check_positive(self.concentration)

    def partition(self, labels: np.ndarray, generator: np.random.Generator) -> Parts:
        _check_enough_examples(labels, self.clients)
        pools = _shuffle_classes(labels, generator)
        left = np.array([len(pool) for pool in pools])
        wanted = np.array([len(part) for part in np.array_split(np.arange(len(labels)), self.clients)])
        mix = generator.dirichlet(np.full(len(pools), self.concentration), self.clients)
        taken: list[list[int]] = [[] for _ in range(self.clients)]
        while wanted.any():
            turn = generator.permutation(np.flatnonzero(wanted))
            drawn = _draw_classes(mix[turn] * (left > 0), left, generator)
            for label in np.unique(drawn):
                served = turn[drawn == label][: left[label]]
                for client, example in zip(served, pools[label][left[label] - len(served) : left[label]], strict=True):
                    taken[client].append(example)
                left[label] -= len(served)
                wanted[served] -= 1
        return [np.array(part) for part in taken]


@final
@dataclass(frozen=True)
class DirichletByLabel:
    """An unbalanced split: every class is divided over the clients by its own draw from Dir(concentration · 1).

    A client with fewer than `least` examples takes the missing ones from the client that has most.
    """

    clients: int
    concentration: float = 0.6
    least: int = 1

    def __post_init__(self) -> None:
        _check_at_least_1(clients=self.clients, least=self.least)
        _check_positive(self.concentration)

    def partition(self, labels: np.ndarray, generator: np.random.Generator) -> Parts:
        _check_enough_examples(labels, self.clients, self.least)
        pieces: list[list[np.ndarray]] = [[] for _ in range(self.clients)]
        for pool in _shuffle_classes(labels, generator):
            share = generator.dirichlet(np.full(self.clients, self.concentration))
            cuts = np.rint(np.cumsum(share)[:-1] * len(pool)).astype(int)
            for own, piece in zip(pieces, np.split(pool, cuts), strict=True):
                own.append(piece)
        parts = [generator.permutation(np.concatenate(own)) for own in pieces]
        for client, part in enumerate(parts):
            while len(part) < self.least:
                largest = max(range(self.clients), key=lambda c: len(parts[c]))
                missing = self.least - len(part)
                moved = min(missing, len(parts[largest]) - self.least)
                part = np.concatenate([part, parts[largest][:moved]])
                parts[largest] = parts[largest][moved:]
                parts[client] = part
        return parts


@final
@dataclass(frozen=True)
class Shards:
    """The examples are sorted by label and cut into clients × per_client shards; each client gets per_client shards."""

    clients: int
    per_client: int = 2

    def __post_init__(self) -> None:
        _check_at_least_1(clients=self.clients, per_client=self.per_client)

    def partition(self, labels: np.ndarray, generator: np.random.Generator) -> Parts:
        _check_enough_examples(labels, self.clients, self.per_client)
        ordered = np.concatenate(_shuffle_classes(labels, generator))
        shards = np.array_split(ordered, self.clients * self.per_client)
        assigned = generator.permutation(len(shards)).reshape(self.clients, self.per_client)
        return [np.concatenate([shards[s] for s in row]) for row in assigned]


@final
@dataclass(frozen=True)
class Natural:
    """The natural split, which the data themselves define; it cannot be applied to other data."""

    def partition(self, labels: np.ndarray, generator: np.random.Generator) -> Parts:
        raise UserError(
            "the split 'natural' needs data with a natural split (a folder with one .npz file per client, or a "
            "function that returns a list of clients); use 'iid' or 'dirichlet' for other data"
        )


SPLITS: dict[str, type[Split]] = {
    "iid": IID,
    "dirichlet": Dirichlet,
    "dirichlet-by-label": DirichletByLabel,
    "shards": Shards,
    "natural": Natural,
}


def split_by_owner(owners: np.ndarray) -> Parts:
    """Return the natural split: for each client, the indices of the examples that it owns."""
    order = np.argsort(owners, kind="stable")
    return np.split(order, np.cumsum(np.bincount(owners))[:-1])


def count_labels(parts: Sequence[np.ndarray], labels: np.ndarray) -> np.ndarray:
    """Return a table (clients, classes) of the number of labels per client and class."""
    classes = int(labels.max()) + 1
    return np.stack([np.bincount(labels[part].reshape(-1), minlength=classes) for part in parts])


def measure_label_mix(counts: np.ndarray, sizes: np.ndarray) -> dict[str, float]:
    """Measure a split: examples per client, classes per client, and the distance of label distributions.

    The distance is the mean total variation between a client's label distribution and that of all clients: 0 if they
    are equal, 1 if they have no class in common.

    Args:
        counts: (clients, classes), the number of labels of each class that each client holds.
        sizes: (clients,), the number of examples of each client; an example may have several labels.
    """
    mix = counts / np.maximum(counts.sum(1), 1)[:, None]
    whole = counts.sum(0) / counts.sum()
    return {
        "clients": len(counts),
        "examples": int(sizes.sum()),
        "least_examples": int(sizes.min()),
        "most_examples": int(sizes.max()),
        "mean_classes": float((counts > 0).sum(1).mean()),
        "mean_distance": float(np.abs(mix - whole).sum(1).mean() / 2),
    }


def _draw_classes(mass: np.ndarray, left: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Draw a class for every row of `mass`, which need not be normalised; a row without mass uses `left`."""
    mass = np.where(mass.sum(1, keepdims=True) > 0, mass, left)
    ends = np.cumsum(mass, axis=1)
    return (generator.random((len(mass), 1)) * ends[:, -1:] < ends).argmax(1)


def _shuffle_classes(labels: np.ndarray, generator: np.random.Generator) -> list[np.ndarray]:
    """Return the indices of each class, in random order."""
    order = generator.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    return np.split(order, np.flatnonzero(np.diff(labels[order])) + 1)


def _check_at_least_1(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise ValueError(f"{name} must be at least 1, got {count}")


def _check_positive(concentration: float) -> None:
    if not concentration > 0:
        raise ValueError(
            f"concentration must be positive, got {concentration}; with 0.1 clients differ much, with 100 hardly at all"
        )


def _check_enough_examples(labels: np.ndarray, clients: int, per_client: int = 1) -> None:
    if len(labels) < clients * per_client:
        raise UserError(f"{clients} clients need at least {clients * per_client} training examples, got {len(labels)}")
