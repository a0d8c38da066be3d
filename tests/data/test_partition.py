"""Splits assign every example once and terminate, whatever the concentration."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcm.data.partition import (
    IID,
    Dirichlet,
    DirichletByLabel,
    Natural,
    Shards,
    Split,
    count_labels,
    split_by_owner,
)
from fedcm.errors import UserError


def make_labels(examples: int, classes: int) -> np.ndarray:
    return np.random.default_rng(1).permutation(np.arange(examples) % classes)


def partition(split: Split, labels: np.ndarray, seed: int = 0) -> list[np.ndarray]:
    """Split the labels, and check that every example is used once."""
    parts = split.partition(labels, np.random.default_rng(seed))
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(labels)))
    return parts


@pytest.mark.parametrize("classes", [10, 100])
@pytest.mark.parametrize("concentration", [0.001, 0.6, 1000.0])
@pytest.mark.parametrize("kind", [Dirichlet, DirichletByLabel])
def test_cifar_is_split_over_500_clients_at_every_concentration(kind: type, concentration: float, classes: int) -> None:
    parts = partition(kind(500, concentration), make_labels(50_000, classes))
    if kind is Dirichlet:
        assert {len(part) for part in parts} == {100}
    else:
        assert min(len(part) for part in parts) >= 1


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 60), st.integers(0, 200), st.integers(1, 12), st.floats(1e-3, 1e3), st.integers(0, 99))
def test_splits_work_for_any_number_of_clients_examples_and_classes(
    clients: int, more: int, classes: int, concentration: float, seed: int
) -> None:
    labels = make_labels(clients * 2 + more, classes)
    for split in (
        IID(clients),
        Dirichlet(clients, concentration),
        DirichletByLabel(clients, concentration, least=2),
        Shards(clients, 2),
    ):
        sizes = [len(part) for part in partition(split, labels, seed)]
        if isinstance(split, IID | Dirichlet):
            assert max(sizes) - min(sizes) <= 1
        if isinstance(split, DirichletByLabel):
            assert min(sizes) >= 2


def test_a_small_concentration_gives_few_classes_and_a_large_one_all() -> None:
    labels = make_labels(50_000, 10)
    few = count_labels(partition(Dirichlet(500, 0.01), labels), labels)
    many = count_labels(partition(Dirichlet(500, 1000.0), labels), labels)
    assert (few > 0).sum(1).mean() < 3
    assert (many > 0).sum(1).min() >= 8
    assert few.max(1).mean() > 85, "most of a client's 100 examples must have one class"


def test_the_first_and_the_last_clients_get_similar_mixes() -> None:
    """If clients drew one after another, the last ones would get the classes that are left over."""
    labels = make_labels(50_000, 10)
    peak = count_labels(partition(Dirichlet(500, 0.1), labels), labels).max(1)
    assert abs(peak[:250].mean() - peak[250:].mean()) < 5


def test_the_mix_of_the_dirichlet_split_has_the_dirichlets_spread() -> None:
    """Var q = (1/k)(1 − 1/k)/(kα + 1) for a symmetric Dirichlet; drawing 100 examples adds a multinomial's variance."""
    labels = make_labels(50_000, 10)
    share = count_labels(partition(Dirichlet(500, 0.6), labels), labels) / 100
    expected = 0.09 / 7 + (0.09 - 0.09 / 7) / 100
    assert share.var(0).mean() == pytest.approx(expected, rel=0.15)


def test_shards_give_each_client_few_classes() -> None:
    labels = make_labels(6000, 10)
    counts = count_labels(partition(Shards(100, 2), labels), labels)
    assert (counts > 0).sum(1).max() <= 4


def test_a_split_is_a_function_of_its_generator() -> None:
    labels = make_labels(1000, 10)
    once, again, other = (Dirichlet(20, 0.6).partition(labels, np.random.default_rng(s)) for s in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(once, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(once, other, strict=True))


def test_labels_may_skip_classes() -> None:
    partition(Dirichlet(5, 0.5), np.array([0, 0, 7, 7, 7, 3, 3, 3, 3, 0]))


def test_a_natural_split_follows_the_owners() -> None:
    parts = split_by_owner(np.array([1, 0, 2, 1, 0]))
    assert [part.tolist() for part in parts] == [[1, 4], [0, 3], [2]]


def test_data_without_a_natural_split_cannot_use_it() -> None:
    with pytest.raises(UserError, match="natural"):
        Natural().partition(make_labels(10, 2), np.random.default_rng(0))


@pytest.mark.parametrize("split", [IID(11), Dirichlet(11), DirichletByLabel(6, least=2), Shards(6, 2)])
def test_more_clients_than_examples_are_rejected(split: Split) -> None:
    with pytest.raises(UserError, match="need at least"):
        split.partition(make_labels(10, 2), np.random.default_rng(0))
