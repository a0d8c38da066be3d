"""The distributions of splits: examples of one class are interchangeable, and so are clients.

The frequencies below are measured over many generators on a few examples. The recorded checksums at the end fix the
random draws themselves, because a split is part of every published result.
"""

import hashlib
from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest

from fedcm.data.partition import (
    IID,
    SPLITS,
    Dirichlet,
    DirichletByLabel,
    Natural,
    Shards,
    Split,
    _draw_classes,
    count_labels,
)
from fedcm.errors import UserError

DRAWS = 3000


def draw_owners(split: Split, labels: list[int], draws: int = DRAWS) -> np.ndarray:
    """Return (draws, examples): the client of each example."""
    owners = np.full((draws, len(labels)), -1)
    for seed in range(draws):
        for client, part in enumerate(split.partition(np.array(labels), np.random.default_rng(seed))):
            owners[seed, part] = client
    return owners


def are_close(frequencies: np.ndarray | list[float], expected: float, draws: int = DRAWS) -> bool:
    """Return whether frequencies are within 5 standard errors of a binomial frequency."""
    return bool(np.abs(np.array(frequencies) - expected).max() < 5 * np.sqrt(expected * (1 - expected) / draws))


def measure_pairs(owners: np.ndarray, examples: list[int]) -> np.ndarray:
    """Return how often each pair of these examples has the same client."""
    return np.array([(owners[:, a] == owners[:, b]).mean() for a, b in combinations(examples, 2)])


def test_an_iid_split_assigns_examples_and_pairs_uniformly() -> None:
    owners = draw_owners(IID(3), [0] * 6)
    assert are_close([(owners == client).mean(0) for client in range(3)], 1 / 3)
    assert are_close(measure_pairs(owners, list(range(6))), 1 / 5)


@pytest.mark.parametrize(
    "split", [Dirichlet(2, 0.6), DirichletByLabel(2, 1.0), Shards(2, 2)], ids=lambda split: type(split).__name__
)
def test_examples_of_a_class_are_interchangeable(split: Split) -> None:
    """Without shuffling, neighbours in the data would be together or apart more often than others."""
    owners = draw_owners(split, [0, 0, 0, 0, 0, 1, 1, 1, 1, 1])
    for examples in (list(range(5)), list(range(5, 10))):
        pairs = measure_pairs(owners, examples)
        assert are_close(pairs, pairs.mean())
        assert are_close((owners[:, examples] == 0).mean(0), (owners[:, examples] == 0).mean())


@pytest.mark.parametrize("split", [IID(3), Dirichlet(3, 0.6)], ids=lambda split: type(split).__name__)
def test_the_first_clients_get_one_more_if_examples_do_not_divide_evenly(split: Split) -> None:
    parts = split.partition(np.arange(11) % 2, np.random.default_rng(0))
    assert [len(part) for part in parts] == [4, 4, 3]


def test_the_last_example_of_a_class_goes_to_each_client_equally_often() -> None:
    """If every turn began with client 0, it would get more than half of them."""
    owners = draw_owners(Dirichlet(2, 1000.0), [0, 0, 0, 1])
    assert are_close([(owners[:, 3] == 0).mean()], 1 / 2)


def draw_first_labels(split: Split, labels: np.ndarray, count: int) -> np.ndarray:
    """Return (draws, clients, count): the classes of the first examples of each client."""
    drawn = [split.partition(labels, np.random.default_rng(seed)) for seed in range(DRAWS)]
    return np.array([[labels[part[:count]] for part in parts] for parts in drawn])


def test_a_clients_class_mix_does_not_depend_on_class_frequencies() -> None:
    """q ~ Dir(0.6 · 1): a client's first example has either class equally often, although class 0 is larger."""
    firsts = draw_first_labels(Dirichlet(2, 0.6), np.array([0] * 8 + [1] * 2), 1)
    assert are_close([firsts.mean()], 1 / 2, DRAWS)


def test_clients_draw_independently_of_each_other() -> None:
    """If q is nearly uniform, the first examples of two clients have the same class half of the time."""
    firsts = draw_first_labels(Dirichlet(2, 1000.0), np.arange(8) % 2, 1)
    assert are_close([(firsts[:, 0] == firsts[:, 1]).mean()], 1 / 2)


@pytest.mark.parametrize(("concentration", "share"), [(1000.0, 1 / 2), (1e-6, 3 / 4)])
def test_after_a_class_is_empty_the_others_are_drawn_by_mass_or_by_count(concentration: float, share: float) -> None:
    """One client, and classes of 1, 6 and 2 examples. After class 0, classes 1 and 2 come equally often if q is nearly
    uniform; if q has all its mass on class 0, they come in proportion to their examples."""
    labels = np.array([0] + [1] * 6 + [2] * 2)
    drawn = draw_first_labels(Dirichlet(1, concentration), labels, 2)[:, 0]
    seconds = drawn[drawn[:, 0] == 0, 1]
    assert len(seconds) > 500
    assert are_close([(seconds == 1).mean()], share, len(seconds))


def test_the_split_by_label_has_the_dirichlets_spread_in_every_class() -> None:
    """The variance of a share is (1/n)(1 − 1/n)/(nα + 1); classes draw their shares independently of each other."""
    labels = np.repeat([0, 1], 500)
    counts = np.stack(
        [
            count_labels(DirichletByLabel(4, 0.6).partition(labels, np.random.default_rng(seed)), labels)
            for seed in range(1000)
        ]
    )
    shares = counts / 500  # (seeds, clients, classes)
    assert shares.mean(0) == pytest.approx(np.full((4, 2), 0.25), abs=0.03)
    assert shares.var(0).mean() == pytest.approx(0.25 * 0.75 / 3.4, rel=0.1)
    assert abs(np.corrcoef(shares[:, 0, 0], shares[:, 0, 1])[0, 1]) < 0.15


def test_the_share_of_a_class_is_rounded_to_the_nearest_integer() -> None:
    """If cuts were rounded down or up, a client would have half an example more or less of every class on average."""
    labels = np.repeat(np.arange(40), 20)
    sizes = np.stack(
        [
            [len(part) for part in DirichletByLabel(2, 5.0).partition(labels, np.random.default_rng(seed))]
            for seed in range(300)
        ]
    )
    assert abs(sizes[:, 0].mean() - 400) < 8, "the difference is 20 if cuts are rounded down"


def test_a_client_with_too_few_examples_takes_from_the_largest() -> None:
    """One class and 4 clients, whose shares do not depend on `least`."""

    def partition_sizes(least: int, seed: int) -> np.ndarray:
        parts = DirichletByLabel(4, 0.3, least).partition(np.zeros(40, int), np.random.default_rng(seed))
        return np.array([len(part) for part in parts])

    checked = rivals = 0
    for seed in range(600):
        before, after = partition_sizes(1, seed), partition_sizes(5, seed)
        missing = np.maximum(5 - before, 0)
        largest = before.argmax()
        expected = before + missing
        expected[largest] -= missing.sum()
        # it is the largest client throughout, or the only client that lacks examples takes them at once
        stays_largest = np.delete(before, largest).max() < expected[largest]
        one_lacks = before.min() >= 2 and (missing > 0).sum() == 1 and expected[largest] >= 5
        if stays_largest or one_lacks:
            assert after.tolist() == expected.tolist()
            checked += missing.sum() > 0
            rivals += not stays_largest
    assert checked > 100
    assert rivals > 3


def test_shards_have_one_class_if_sizes_match_and_are_assigned_at_random() -> None:
    labels = np.repeat(np.arange(4), 5)
    pairs = []
    for seed in range(DRAWS):
        parts = Shards(2, 2).partition(labels, np.random.default_rng(seed))
        counts = count_labels(parts, labels)
        assert set(counts.flatten().tolist()) == {0, 5}
        pairs.append(tuple(np.flatnonzero(counts[0])))
    assert are_close([pairs.count(pair) / DRAWS for pair in combinations(range(4), 2)], 1 / 6)


def test_the_defaults_of_splits() -> None:
    assert Dirichlet(5) == Dirichlet(clients=5, concentration=0.6)
    assert DirichletByLabel(5) == DirichletByLabel(clients=5, concentration=0.6, least=1)
    assert Shards(5) == Shards(clients=5, per_client=2)
    assert list(SPLITS) == ["iid", "dirichlet", "dirichlet-by-label", "shards", "natural"]
    assert list(SPLITS.values()) == [IID, Dirichlet, DirichletByLabel, Shards, Natural]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: IID(0), "clients must be at least 1, got 0"),
        (lambda: Dirichlet(0), "clients must be at least 1, got 0"),
        (lambda: DirichletByLabel(0), "clients must be at least 1, got 0"),
        (lambda: DirichletByLabel(5, least=0), "least must be at least 1, got 0"),
        (lambda: Shards(0), "clients must be at least 1, got 0"),
        (lambda: Shards(5, 0), "per_client must be at least 1, got 0"),
        (lambda: Dirichlet(5, 0.0), "concentration must be positive, got 0.0"),
        (lambda: Dirichlet(5, float("nan")), "concentration must be positive, got nan"),
        (lambda: DirichletByLabel(5, -1.0), "concentration must be positive, got -1.0"),
    ],
)
def test_invalid_split_settings_raise_in_the_constructor(make: Callable[[], Split], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("split", "needed"), [(IID(10), 10), (Dirichlet(10), 10), (DirichletByLabel(5, least=2), 10), (Shards(5, 2), 10)]
)
def test_the_minimum_number_of_examples_works_and_one_fewer_is_rejected(split: Split, needed: int) -> None:
    labels = np.arange(needed) % 2
    assert sum(len(part) for part in split.partition(labels, np.random.default_rng(0))) == needed
    message = rf"{split.clients} clients need at least {needed} training examples, got {needed - 1}"  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(UserError, match=message):
        split.partition(labels[1:], np.random.default_rng(0))


def test_label_counts_have_a_column_for_every_label_up_to_the_largest() -> None:
    labels = np.array([0, 3, 3, 0, 3])
    assert count_labels([np.array([0, 3]), np.array([1, 2, 4])], labels).tolist() == [[2, 0, 0, 0], [0, 0, 0, 3]]


def test_a_class_without_mass_is_not_drawn_even_if_the_random_number_is_0() -> None:
    class Zero:
        def random(self, shape: tuple[int, ...]) -> np.ndarray:
            return np.zeros(shape)

    mass, left = np.array([[0.0, 0.5, 0.5], [0.0, 0.0, 0.0]]), np.array([0, 3, 1])
    assert _draw_classes(mass, left, Zero()).tolist() == [1, 1]  # pyright: ignore[reportArgumentType]


RECORDED = {
    IID(7): "12814aeb80325a2d",
    Dirichlet(7, 0.6): "7e18c95b634220d9",
    Dirichlet(7, 0.01): "cfebd88065184ad1",
    DirichletByLabel(7, 0.6): "09cf5842c7ea85bc",
    DirichletByLabel(7, 0.3, least=20): "5f2a1bcff3b7a5cd",
    Shards(7, 3): "7ac3c0a4aaad0d4c",
}


@pytest.mark.parametrize("split", RECORDED, ids=str)
def test_a_split_is_the_recorded_one(split: Split) -> None:
    """Including the order within a client, because minibatches are positions in it."""
    labels = np.random.default_rng(1).integers(0, 5, 200)
    parts = split.partition(labels, np.random.Generator(np.random.Philox(4)))
    text = ";".join(",".join(map(str, part.tolist())) for part in parts)
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == RECORDED[split]
