"""Graphs in place of a server: which nodes exchange their parameters, and with which weights.

A round of gossip replaces each node's parameters by a weighted mean over the node and its neighbours. The weights are
Metropolis weights, which every node computes from its own degree and those of its neighbours:

    W_ij = 1 / (1 + max(degree_i, degree_j)) for neighbours,   W_ii = 1 − Σ_j W_ij

W is symmetric and doubly stochastic, so gossip never changes the mean over all nodes.

Xiao, Boyd & Kim, "Distributed Average Consensus with Least-Mean-Square Deviation", 2007.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, final, runtime_checkable

import numpy as np

from fedcm.errors import UserError
from fedcm.rng import Purpose, make_generator


@runtime_checkable
class Topology(Protocol):
    """A graph over the nodes."""

    def connect(self, nodes: int, seed: int) -> np.ndarray:
        """Return the symmetric boolean adjacency matrix (nodes, nodes), without self-loops."""
        ...


@final
@dataclass(frozen=True)
class Ring:
    """Every node has two neighbours."""

    def connect(self, nodes: int, seed: int) -> np.ndarray:
        """Return the adjacency matrix."""
        return _connect_by_offsets(nodes, [1])


@final
@dataclass(frozen=True)
class Torus:
    """A grid with joined borders, as square as the number of nodes allows; a node has at most four neighbours."""

    def connect(self, nodes: int, seed: int) -> np.ndarray:
        """Return the adjacency matrix."""
        rows = max(side for side in range(1, math.isqrt(nodes) + 1) if nodes % side == 0)
        grid = np.arange(nodes).reshape(rows, -1)
        adjacency = np.zeros((nodes, nodes), dtype=bool)
        for axis in (0, 1):
            adjacency[grid.ravel(), np.roll(grid, 1, axis).ravel()] = True
        return _make_symmetric(adjacency)


@final
@dataclass(frozen=True)
class Exponential:
    """Every node has the neighbours at distance 1, 2, 4, 8, … in both directions of a ring."""

    def connect(self, nodes: int, seed: int) -> np.ndarray:
        """Return the adjacency matrix."""
        return _connect_by_offsets(nodes, [2**power for power in range(max(nodes - 1, 1).bit_length())])


@final
@dataclass(frozen=True)
class Complete:
    """Every node is the neighbour of every other one."""

    def connect(self, nodes: int, seed: int) -> np.ndarray:
        """Return the adjacency matrix."""
        return _make_symmetric(np.ones((nodes, nodes), dtype=bool))


@final
@dataclass(frozen=True)
class ErdosRenyi:
    """Every pair of nodes is joined with this probability, as the seed decides; drawn again until it is connected."""

    probability: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.probability <= 1:
            raise ValueError(f"probability must be above 0 and at most 1, got {self.probability}")

    def connect(self, nodes: int, seed: int) -> np.ndarray:
        """Return the adjacency matrix.

        Raises:
            UserError: If no connected graph was drawn.
        """
        generator = make_generator(seed, Purpose.TOPOLOGY, 0)
        for _ in range(100):
            adjacency = _make_symmetric(np.triu(generator.random((nodes, nodes)) < self.probability, 1))
            if is_connected(adjacency):
                return adjacency
        raise UserError(
            f"topology.probability must be large enough to connect {nodes} nodes, got {self.probability}: none of 100 "
            f"graphs was connected; {min(2 * math.log(max(nodes, 2)) / nodes, 1):.2g} usually is enough"
        )


@final
@dataclass(frozen=True)
class Adjacency:
    """A graph of your own: a text file with one row of 0s and 1s, separated by spaces or commas, for each node."""

    file: str

    def connect(self, nodes: int, seed: int) -> np.ndarray:
        """Return the adjacency matrix.

        Raises:
            UserError: If the file is not the adjacency matrix of a connected graph over the nodes.
        """
        try:
            rows = [line.replace(",", " ").split() for line in Path(self.file).read_text().splitlines() if line.strip()]
            values = np.array(rows, dtype=np.float64)
        except (OSError, ValueError) as error:
            raise UserError(f"the graph {self.file!r} cannot be read: {error}") from None
        if values.shape != (nodes, nodes):
            raise UserError(f"the graph {self.file!r} must have {nodes} rows of {nodes} numbers, got {values.shape}")
        if not np.isin(values, (0, 1)).all() or not (values == values.T).all():
            raise UserError(f"the graph {self.file!r} must be a symmetric matrix of 0s and 1s")
        adjacency = _make_symmetric(values > 0)
        if not is_connected(adjacency):
            raise UserError(
                f"the graph {self.file!r} must be connected: every node must be reachable from every other one"
            )
        return adjacency


TOPOLOGIES: dict[str, type[Topology]] = {
    "ring": Ring,
    "torus": Torus,
    "exponential": Exponential,
    "complete": Complete,
    "erdos-renyi": ErdosRenyi,
    "file": Adjacency,
}


def compute_mixing_matrix(topology: Topology, nodes: int, seed: int) -> np.ndarray:
    """Return the Metropolis weights (nodes, nodes) of a graph, in float64.

    Raises:
        UserError: If the graph is not symmetric or not connected.

    >>> compute_mixing_matrix(Ring(), 4, seed=0)[0].round(2).tolist()
    [0.33, 0.33, 0.0, 0.33]
    """
    adjacency = topology.connect(nodes, seed)
    valid = isinstance(adjacency, np.ndarray) and adjacency.dtype == bool and adjacency.shape == (nodes, nodes)
    if not (valid and (adjacency == adjacency.T).all() and not adjacency.diagonal().any() and is_connected(adjacency)):
        raise UserError(
            f"the topology {type(topology).__name__} must give a symmetric boolean matrix of shape {(nodes, nodes)}, "
            "without True on its diagonal, of a connected graph"
        )
    degrees = adjacency.sum(1)
    weights = np.where(adjacency, 1 / (1 + np.maximum(degrees[:, None], degrees[None, :])), 0.0)
    return weights + np.diag(1 - weights.sum(1))


def is_connected(adjacency: np.ndarray) -> bool:
    """Return whether every node can be reached from node 0."""
    reached = np.zeros(len(adjacency), dtype=bool)
    reached[:1] = True
    while True:
        further = reached | adjacency[reached].any(0)
        if (further == reached).all():
            return bool(reached.all())
        reached = further


def _connect_by_offsets(nodes: int, offsets: list[int]) -> np.ndarray:
    adjacency = np.zeros((nodes, nodes), dtype=bool)
    for offset in offsets:
        adjacency[np.arange(nodes), (np.arange(nodes) + offset) % nodes] = True
    return _make_symmetric(adjacency)


def _make_symmetric(adjacency: np.ndarray) -> np.ndarray:
    symmetric = adjacency | adjacency.T
    np.fill_diagonal(symmetric, False)
    return symmetric
