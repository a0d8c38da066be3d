"""What splits draw: every example of a class is as likely to go anywhere as the others, and no client is favoured.

The frequencies below are taken over many generators on a few examples. The recorded checksums at the end guard the
draws themselves, because a split is part of every published result.
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
    label_counts,
)
from fedcm.errors import UserError

DRAWS = 3000


def owners(split: Split, labels: list[int], draws: int = DRAWS) -> np.ndarray:
    """(draws, examples): the client that holds each example."""
    found = np.full((draws, len(labels)), -1)
    for seed in range(draws):
        for client, part in enumerate(split.parts(np.array(labels), np.random.default_rng(seed))):
            found[seed, part] = client
    return found


def alike(frequencies: np.ndarray | list[float], expected: float, draws: int = DRAWS) -> bool:
    """Within 5 standard errors of a binomial frequency."""
    return bool(np.abs(np.array(frequencies) - expected).max() < 5 * np.sqrt(expected * (1 - expected) / draws))


def together(held: np.ndarray, examples: list[int]) -> np.ndarray:
    """How often each pair of these examples has the same client."""
    return np.array([(held[:, a] == held[:, b]).mean() for a, b in combinations(examples, 2)])


def test_an_iid_split_gives_every_example_to_every_client_equally_often_and_pairs_too() -> None:
    held = owners(IID(3), [0] * 6)
    assert alike([(held == client).mean(0) for client in range(3)], 1 / 3)
    assert alike(together(held, list(range(6))), 1 / 5)


@pytest.mark.parametrize(
    "split", [Dirichlet(2, 0.6), DirichletByLabel(2, 1.0), Shards(2, 2)], ids=lambda split: type(split).__name__
)
def test_examples_of_a_class_are_interchangeable(split: Split) -> None:
    """A class that were not shuffled would be dealt out in the order of the data: neighbours together, or apart."""
    held = owners(split, [0, 0, 0, 0, 0, 1, 1, 1, 1, 1])
    for examples in (list(range(5)), list(range(5, 10))):
        pairs = together(held, examples)
        assert alike(pairs, pairs.mean())
        assert alike((held[:, examples] == 0).mean(0), (held[:, examples] == 0).mean())


@pytest.mark.parametrize("split", [IID(3), Dirichlet(3, 0.6)], ids=lambda split: type(split).__name__)
def test_where_examples_do_not_divide_evenly_the_first_clients_hold_one_more(split: Split) -> None:
    parts = split.parts(np.arange(11) % 2, np.random.default_rng(0))
    assert [len(part) for part in parts] == [4, 4, 3]


def test_the_last_example_of_a_class_goes_to_any_client_that_wants_it() -> None:
    """A round of draws that always began with client 0 would give it more than half of these."""
    held = owners(Dirichlet(2, 1000.0), [0, 0, 0, 1])
    assert alike([(held[:, 3] == 0).mean()], 1 / 2)


def first_labels(split: Split, labels: np.ndarray, count: int) -> np.ndarray:
    """(draws, clients, count): the classes of the first examples that each client drew."""
    drawn = [split.parts(labels, np.random.default_rng(seed)) for seed in range(DRAWS)]
    return np.array([[labels[part[:count]] for part in parts] for parts in drawn])


def test_a_clients_mix_does_not_follow_how_frequent_classes_are() -> None:
    """q ~ Dir(0.6 · 1): the first example of a client is of either class equally often, though one has four fifths."""
    firsts = first_labels(Dirichlet(2, 0.6), np.array([0] * 8 + [1] * 2), 1)
    assert alike([firsts.mean()], 1 / 2, DRAWS)


def test_clients_draw_independently_of_each_other() -> None:
    """With q nearly uniform the first examples of two clients agree in class every other time, and not always."""
    firsts = first_labels(Dirichlet(2, 1000.0), np.arange(8) % 2, 1)
    assert alike([(firsts[:, 0] == firsts[:, 1]).mean()], 1 / 2)


@pytest.mark.parametrize(("concentration", "share"), [(1000.0, 1 / 2), (1e-6, 3 / 4)])
def test_when_a_class_has_run_out_the_others_are_drawn_by_their_mass_or_else_by_their_counts(
    concentration: float, share: float
) -> None:
    """Classes of 1, 6 and 2 examples, one client. After class 0, classes 1 and 2 come equally often where q is nearly
    uniform; where q has all its mass on class 0, they come as often as they have examples left."""
    labels = np.array([0] + [1] * 6 + [2] * 2)
    drawn = first_labels(Dirichlet(1, concentration), labels, 2)[:, 0]
    seconds = drawn[drawn[:, 0] == 0, 1]
    assert len(seconds) > 500
    assert alike([(seconds == 1).mean()], share, len(seconds))


def test_the_split_by_label_has_the_dirichlets_spread_in_every_class() -> None:
    """Var of a share = (1/n)(1 − 1/n)/(nα + 1); classes draw their shares independently of each other."""
    labels = np.repeat([0, 1], 500)
    counts = np.stack(
        [
            label_counts(DirichletByLabel(4, 0.6).parts(labels, np.random.default_rng(seed)), labels)
            for seed in range(1000)
        ]
    )
    shares = counts / 500  # (seeds, clients, classes)
    assert shares.mean(0) == pytest.approx(np.full((4, 2), 0.25), abs=0.03)
    assert shares.var(0).mean() == pytest.approx(0.25 * 0.75 / 3.4, rel=0.1)
    assert abs(np.corrcoef(shares[:, 0, 0], shares[:, 0, 1])[0, 1]) < 0.15


def test_a_share_of_a_class_is_rounded_to_the_nearest() -> None:
    """Cut down or up instead, the last client would hold half an example more or less of every class on the mean."""
    labels = np.repeat(np.arange(40), 20)
    sizes = np.stack(
        [
            [len(part) for part in DirichletByLabel(2, 5.0).parts(labels, np.random.default_rng(seed))]
            for seed in range(300)
        ]
    )
    assert abs(sizes[:, 0].mean() - 400) < 8, "20 of 800, were cuts rounded down"


def test_who_has_too_few_takes_what_it_needs_from_whoever_has_most() -> None:
    """One class over 4 clients, whose shares do not depend on `least`."""

    def sizes(least: int, seed: int) -> np.ndarray:
        parts = DirichletByLabel(4, 0.3, least).parts(np.zeros(40, int), np.random.default_rng(seed))
        return np.array([len(part) for part in parts])

    lacked = rivals = 0
    for seed in range(600):
        before, after = sizes(1, seed), sizes(5, seed)
        missing = np.maximum(5 - before, 0)
        rich = before.argmax()
        expected = before + missing
        expected[rich] -= missing.sum()
        alone = np.delete(before, rich).max() < expected[rich]  # so it has most all the time
        one_lacks = before.min() >= 2 and (missing > 0).sum() == 1 and expected[rich] >= 5  # and takes it all at once
        if alone or one_lacks:
            assert after.tolist() == expected.tolist()
            lacked += missing.sum() > 0
            rivals += not alone
    assert lacked > 100
    assert rivals > 3


def test_shards_are_of_one_class_where_they_fit_and_dealt_at_random() -> None:
    labels = np.repeat(np.arange(4), 5)
    pairs = []
    for seed in range(DRAWS):
        parts = Shards(2, 2).parts(labels, np.random.default_rng(seed))
        counts = label_counts(parts, labels)
        assert set(counts.flatten().tolist()) == {0, 5}
        pairs.append(tuple(np.flatnonzero(counts[0])))
    assert alike([pairs.count(pair) / DRAWS for pair in combinations(range(4), 2)], 1 / 6)


def test_defaults_are_the_papers_and_the_least() -> None:
    assert Dirichlet(5) == Dirichlet(clients=5, concentration=0.6)
    assert DirichletByLabel(5) == DirichletByLabel(clients=5, concentration=0.6, least=1)
    assert Shards(5) == Shards(clients=5, per_client=2)
    assert list(SPLITS) == ["iid", "dirichlet", "dirichlet-by-label", "shards", "natural"]
    assert list(SPLITS.values()) == [IID, Dirichlet, DirichletByLabel, Shards, Natural]


@pytest.mark.parametrize(
    ("make", "words"),
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
def test_a_split_that_cannot_work_is_refused_where_it_is_made(make: Callable[[], Split], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize(
    ("split", "needed"), [(IID(10), 10), (Dirichlet(10), 10), (DirichletByLabel(5, least=2), 10), (Shards(5, 2), 10)]
)
def test_exactly_enough_examples_are_enough_and_one_fewer_is_refused(split: Split, needed: int) -> None:
    labels = np.arange(needed) % 2
    assert sum(len(part) for part in split.parts(labels, np.random.default_rng(0))) == needed
    words = rf"{split.clients} clients need at least {needed} training examples, and there are {needed - 1}"  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(UserError, match=words):
        split.parts(labels[1:], np.random.default_rng(0))


def test_label_counts_have_a_column_for_every_label_up_to_the_largest() -> None:
    labels = np.array([0, 3, 3, 0, 3])
    assert label_counts([np.array([0, 3]), np.array([1, 2, 4])], labels).tolist() == [[2, 0, 0, 0], [0, 0, 0, 3]]


def test_a_class_without_mass_is_not_drawn_even_by_a_draw_of_exactly_0() -> None:
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
def test_a_split_is_the_one_of_every_run_so_far(split: Split) -> None:
    """Order within a client included, because minibatches are drawn as positions in it."""
    labels = np.random.default_rng(1).integers(0, 5, 200)
    parts = split.parts(labels, np.random.Generator(np.random.Philox(4)))
    told = ";".join(",".join(map(str, part.tolist())) for part in parts)
    assert hashlib.sha256(told.encode()).hexdigest()[:16] == RECORDED[split]
