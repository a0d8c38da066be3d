"""How examples are dealt out to clients. Every example goes to exactly one client, and nothing here can hang.

A split takes the labels, the number of clients and a generator, and gives one array of indices a client.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, final

import numpy as np

from fedcm.errors import UserError

Parts = list[np.ndarray]


class Split(Protocol):
    def parts(self, labels: np.ndarray, draw: np.random.Generator) -> Parts: ...


@final
@dataclass(frozen=True)
class IID:
    """Shuffled and cut into equal parts; where that leaves a remainder, the first clients hold one more."""

    clients: int

    def __post_init__(self) -> None:
        _at_least_1(clients=self.clients)

    def parts(self, labels: np.ndarray, draw: np.random.Generator) -> Parts:
        _enough(labels, self.clients)
        return np.array_split(draw.permutation(len(labels)), self.clients)


@final
@dataclass(frozen=True)
class Dirichlet:
    """Balanced, the FedCM paper's: client i draws q_i ~ Dir(concentration · 1), then its examples' labels from q_i.

    The clients draw in turn, one example each at a time, so that all of them meet a class that runs out equally late;
    from then on their q_i are renormalised over what is left (over the counts left, where q_i has no mass there).
    A turn either serves every client or empties a class, so there are at most n/N + classes turns.
    """

    clients: int
    concentration: float = 0.6

    def __post_init__(self) -> None:
        _at_least_1(clients=self.clients)
        _positive(self.concentration)

    def parts(self, labels: np.ndarray, draw: np.random.Generator) -> Parts:
        _enough(labels, self.clients)
        pools = _shuffled_classes(labels, draw)
        left = np.array([len(pool) for pool in pools])
        wanted = np.array([len(part) for part in np.array_split(np.arange(len(labels)), self.clients)])
        mix = draw.dirichlet(np.full(len(pools), self.concentration), self.clients)
        taken: list[list[int]] = [[] for _ in range(self.clients)]
        while wanted.any():
            turn = draw.permutation(np.flatnonzero(wanted))
            chosen = _draw_classes(mix[turn] * (left > 0), left, draw)
            for label in np.unique(chosen):
                served = turn[chosen == label][: left[label]]
                for client, example in zip(served, pools[label][left[label] - len(served) : left[label]], strict=True):
                    taken[client].append(example)
                left[label] -= len(served)
                wanted[served] -= 1
        return [np.array(part) for part in taken]


@final
@dataclass(frozen=True)
class DirichletByLabel:
    """Unbalanced: every class is dealt out over the clients by its own draw from Dir(concentration · 1).

    A client left with fewer than `least` examples takes from whoever then has most.
    """

    clients: int
    concentration: float = 0.6
    least: int = 1

    def __post_init__(self) -> None:
        _at_least_1(clients=self.clients, least=self.least)
        _positive(self.concentration)

    def parts(self, labels: np.ndarray, draw: np.random.Generator) -> Parts:
        _enough(labels, self.clients, self.least)
        owned: list[list[np.ndarray]] = [[] for _ in range(self.clients)]
        for pool in _shuffled_classes(labels, draw):
            share = draw.dirichlet(np.full(self.clients, self.concentration))
            cuts = np.rint(np.cumsum(share)[:-1] * len(pool)).astype(int)
            for part, piece in zip(owned, np.split(pool, cuts), strict=True):
                part.append(piece)
        parts = [draw.permutation(np.concatenate(pieces)) for pieces in owned]
        for client, part in enumerate(parts):
            while len(part) < self.least:
                richest = max(range(self.clients), key=lambda c: len(parts[c]))
                lacking = self.least - len(part)
                given = min(lacking, len(parts[richest]) - self.least)
                part = np.concatenate([part, parts[richest][:given]])
                parts[richest] = parts[richest][given:]
                parts[client] = part
        return parts


@final
@dataclass(frozen=True)
class Shards:
    """Sorted by label, cut into clients × per_client shards, and so many shards dealt to each client."""

    clients: int
    per_client: int = 2

    def __post_init__(self) -> None:
        _at_least_1(clients=self.clients, per_client=self.per_client)

    def parts(self, labels: np.ndarray, draw: np.random.Generator) -> Parts:
        _enough(labels, self.clients, self.per_client)
        ordered = np.concatenate(_shuffled_classes(labels, draw))
        shards = np.array_split(ordered, self.clients * self.per_client)
        dealt = draw.permutation(len(shards)).reshape(self.clients, self.per_client)
        return [np.concatenate([shards[s] for s in row]) for row in dealt]


@final
@dataclass(frozen=True)
class Natural:
    """The split that the data bring."""

    def parts(self, labels: np.ndarray, draw: np.random.Generator) -> Parts:
        raise UserError(
            "the split 'natural' needs data that bring one (a folder with one .npz a client, or a function that "
            "returns a list of clients); use 'iid' or 'dirichlet' for others"
        )


SPLITS: dict[str, type[Split]] = {
    "iid": IID,
    "dirichlet": Dirichlet,
    "dirichlet-by-label": DirichletByLabel,
    "shards": Shards,
    "natural": Natural,
}


def split_by_owner(owners: np.ndarray) -> Parts:
    """The parts of a natural split."""
    order = np.argsort(owners, kind="stable")
    return np.split(order, np.cumsum(np.bincount(owners))[:-1])


def label_counts(parts: Sequence[np.ndarray], labels: np.ndarray) -> np.ndarray:
    """(clients, classes): how many labels of each class each client holds."""
    classes = int(labels.max()) + 1
    return np.stack([np.bincount(labels[part].reshape(-1), minlength=classes) for part in parts])


def _draw_classes(mass: np.ndarray, left: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """A class for every row of `mass`, which need not be normalised."""
    mass = np.where(mass.sum(1, keepdims=True) > 0, mass, left)
    ends = np.cumsum(mass, axis=1)
    return (draw.random((len(mass), 1)) * ends[:, -1:] < ends).argmax(1)


def _shuffled_classes(labels: np.ndarray, draw: np.random.Generator) -> list[np.ndarray]:
    order = draw.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    return np.split(order, np.flatnonzero(np.diff(labels[order])) + 1)


def _at_least_1(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise ValueError(f"{name} must be at least 1, got {count}")


def _positive(concentration: float) -> None:
    if not concentration > 0:
        raise ValueError(
            f"concentration must be positive, got {concentration}; 0.1 makes clients differ much, 100 hardly at all"
        )


def _enough(labels: np.ndarray, clients: int, each: int = 1) -> None:
    if len(labels) < clients * each:
        raise UserError(
            f"{clients} clients need at least {clients * each} training examples, and there are {len(labels)}"
        )
