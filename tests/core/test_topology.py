"""Graphs of decentralised training: their neighbours, and weights that keep the mean of the nodes."""

from pathlib import Path

import numpy as np
import pytest

from fedcm.core.topology import (
    Adjacency,
    Complete,
    ErdosRenyi,
    Exponential,
    Ring,
    Topology,
    Torus,
    compute_mixing_matrix,
    is_connected,
)
from fedcm.errors import UserError

GRAPHS: list[Topology] = [Ring(), Torus(), Exponential(), Complete(), ErdosRenyi(0.5)]


@pytest.mark.parametrize("nodes", [1, 2, 3, 8, 12, 17])
@pytest.mark.parametrize("graph", GRAPHS, ids=str)
def test_weights_are_symmetric_doubly_stochastic_and_mix(graph: Topology, nodes: int) -> None:
    weights = compute_mixing_matrix(graph, nodes, seed=3)
    assert weights.shape == (nodes, nodes)
    np.testing.assert_allclose(weights, weights.T)
    np.testing.assert_allclose(weights.sum(0), 1.0)
    assert (weights >= -1e-15).all()
    assert is_connected(weights > 0)
    second = np.sort(np.abs(np.linalg.eigvalsh(weights)))[-2] if nodes > 1 else 0.0
    assert second < 1 - 1e-9, "repeated gossip must reach the mean"


def list_neighbours(graph: Topology, nodes: int, node: int) -> list[int]:
    return np.flatnonzero(graph.connect(nodes, seed=0)[node]).tolist()


def test_neighbours_are_those_of_the_graph() -> None:
    assert list_neighbours(Ring(), 6, 0) == [1, 5]
    assert list_neighbours(Torus(), 12, 0) == [1, 3, 4, 8], "three rows of four"
    assert list_neighbours(Torus(), 9, 4) == [1, 3, 5, 7]
    assert list_neighbours(Exponential(), 16, 0) == [1, 2, 4, 8, 12, 14, 15]
    assert list_neighbours(Complete(), 4, 2) == [0, 1, 3]


def test_metropolis_weights_follow_the_degrees(tmp_path: Path) -> None:
    """A star: the centre has three neighbours, each leaf one."""
    file = tmp_path / "star.txt"
    file.write_text("0 1 1 1\n1 0 0 0\n1,0,0,0\n1 0 0 0\n")
    weights = compute_mixing_matrix(Adjacency(str(file)), 4, seed=0)
    quarter = 1 / (1 + 3)
    np.testing.assert_allclose(weights[0], [1 - 3 * quarter, quarter, quarter, quarter])
    np.testing.assert_allclose(weights[1], [quarter, 1 - quarter, 0, 0])


def test_random_graphs_depend_on_the_seed_alone() -> None:
    first, again, other = (ErdosRenyi(0.4).connect(12, seed) for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()
    assert abs(first.mean() - 0.4) < 0.2


def test_a_sparse_random_graph_that_is_never_connected_is_rejected() -> None:
    with pytest.raises(UserError, match=r"topology.probability must be large enough to connect 40 nodes, got 0.001"):
        ErdosRenyi(0.001).connect(40, seed=0)


@pytest.mark.parametrize("probability", [0.0, -0.1, 1.1, float("nan")])
def test_a_probability_out_of_range_is_rejected(probability: float) -> None:
    with pytest.raises(ValueError, match="probability must be above 0 and at most 1"):
        ErdosRenyi(probability)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 1\n1 0\n", r"must have 3 rows of 3 numbers, got \(2, 2\)"),
        ("0 1 0\n1 0 0\n0 0 0\n", "must be connected"),
        ("0 1 1\n0 0 1\n1 1 0\n", "must be a symmetric matrix of 0s and 1s"),
        ("0 2 1\n2 0 1\n1 1 0\n", "must be a symmetric matrix of 0s and 1s"),
        ("0 1 x\n1 0 1\n1 1 0\n", "cannot be read"),
        ("0 1 1\n1 0\n1 1 0\n", "cannot be read"),
    ],
)
def test_a_file_that_is_not_a_graph_raises_one_sentence(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "graph.txt"
    file.write_text(text)
    with pytest.raises(UserError, match=message):
        Adjacency(str(file)).connect(3, seed=0)


def test_a_missing_file_raises_one_sentence() -> None:
    with pytest.raises(UserError, match=r"the graph 'nowhere.txt' cannot be read"):
        Adjacency("nowhere.txt").connect(3, seed=0)
