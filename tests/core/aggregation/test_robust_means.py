"""Robust means against their definitions, their identities, and hostile reports of any size."""

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import pytest
import reference_means as reference
import torch
from torch import Tensor

from fedcm.algorithms import ALGORITHMS
from fedcm.core.aggregation.aggregation import PLAIN_MEAN
from fedcm.core.aggregation.robust import (
    MEANS,
    Bulyan,
    CentredClipping,
    Clipped,
    GeometricMedian,
    Krum,
    Median,
    RobustRule,
    Trimmed,
    make_aggregation,
)
from fedcm.core.algorithm import Round

ROUND = Round(3, 0.1, 1.0, 11, 11, 5.0)
WIDTHS = (7, 4)  # entries of the two fields


class TwoFields(NamedTuple):
    first: Tensor
    second: Tensor


TEMPLATE = TwoFields(*[torch.zeros(width, dtype=torch.float64) for width in WIDTHS])


def draw(count: int = 11, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, sum(WIDTHS))) + 1.0


def split(row: np.ndarray) -> TwoFields:
    return TwoFields(*map(torch.from_numpy, np.split(row, [WIDTHS[0]])))


def average(
    rule: Any, rows: np.ndarray, weights: np.ndarray | None = None, seed: int = 5, facts: dict[str, Any] | None = None
) -> np.ndarray:
    """The mean through the seam, as an executor calls it."""
    weights = np.ones(len(rows)) if weights is None else weights
    cohort = np.arange(len(rows)) + 100
    sums = make_aggregation(rule, seed, ALGORITHMS["scaffold"]()).start_round(TEMPLATE, None, cohort, ROUND)
    for client, row, weight in zip(cohort.tolist(), rows, weights.tolist(), strict=True):
        sums.add_stack([client], TwoFields(*[field[None] for field in split(row)]), [weight])
    result = sums.compute(cohort, weights)
    if facts is not None:
        facts |= sums.describe()
    return np.concatenate([field.numpy() for field in result])


CASES: dict[str, tuple[RobustRule, Any]] = {
    "clipped at a bound": (Clipped(bound=2.0), lambda rows: reference.clipped(rows, 2.0)),
    "clipped at the median norm": (
        Clipped(ratio=0.7),
        lambda rows: reference.clipped(rows, 0.7 * float(np.median([reference.norm(row) for row in rows]))),
    ),
    "centred clipping": (
        CentredClipping(radius=1.5, iterations=4),
        lambda rows: reference.centred_clipping(rows, reference.median(rows), 1.5, 4),
    ),
    "median": (Median(), reference.median),
    "trimmed": (Trimmed(0.3), lambda rows: reference.trimmed(rows, int(0.3 * len(rows)))),
    "krum": (Krum(2), lambda rows: reference.multi_krum(rows, 2, 1)),
    "multi-krum": (Krum(2, keep=4), lambda rows: reference.multi_krum(rows, 2, 4)),
    "bulyan": (Bulyan(2), lambda rows: reference.bulyan(rows, 2)),
}


@pytest.mark.parametrize("count", [11, 12])
@pytest.mark.parametrize("case", CASES)
def test_a_mean_is_the_one_that_its_paper_defines(case: str, count: int) -> None:
    rule, expected = CASES[case]
    for seed in range(3):
        rows = draw(count, seed)
        np.testing.assert_allclose(average(rule, rows), expected(rows), rtol=1e-9, atol=1e-11)


def test_the_geometric_median_has_the_least_sum_of_distances() -> None:
    rows = draw()
    found = average(GeometricMedian(iterations=200), rows)
    least = reference.sum_of_distances(rows, found)
    rng = np.random.default_rng(1)
    for scale in (1e-3, 1e-1, 1.0):
        for _ in range(20):
            assert reference.sum_of_distances(rows, found + scale * rng.normal(size=found.shape)) > least
    pulls = sum((row - found) / reference.norm(row - found) for row in rows)  # the gradient of that sum
    assert reference.norm(np.asarray(pulls)) < 1e-6


def test_more_iterations_come_closer_to_the_geometric_median() -> None:
    rows = draw()
    sums = [reference.sum_of_distances(rows, average(GeometricMedian(iterations=n), rows)) for n in (1, 3, 8)]
    assert sums[0] > sums[1] > sums[2]


ALL: dict[str, RobustRule] = {name: rule for name, (rule, _) in CASES.items()} | {
    "geometric median": GeometricMedian(iterations=40)
}


@pytest.mark.parametrize("name", ALL)
def test_hostile_reports_of_any_size_do_not_move_a_mean_far(name: str) -> None:
    """Two of eleven reports are at 1e6, then at 1e12, in a common direction."""
    honest, rule = draw(), ALL[name]
    spread = max(reference.norm(row - reference.mean(honest)) for row in honest)
    for size in (1e6, 1e12):
        rows = honest.copy()
        rows[[2, 5]] = size
        apart = reference.norm(average(rule, rows) - reference.mean(honest))
        assert apart < 2 * spread, (name, size, apart, spread)
    assert reference.norm(average(PLAIN_MEAN, rows) - reference.mean(honest)) > 1e10


@pytest.mark.parametrize("name", ALL)
def test_the_order_of_reports_does_not_matter(name: str) -> None:
    rows = draw()
    order = np.random.default_rng(3).permutation(len(rows))
    np.testing.assert_allclose(average(ALL[name], rows[order]), average(ALL[name], rows), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    "rule", [Trimmed(0.0), CentredClipping(radius=1e30), Clipped(bound=1e30), Clipped(ratio=1e30), Krum(0, keep=11)]
)
def test_rules_that_leave_every_report_as_it_is_give_the_plain_mean(rule: RobustRule) -> None:
    np.testing.assert_allclose(average(rule, draw()), average(PLAIN_MEAN, draw()), rtol=1e-12)


def test_krum_returns_one_of_the_reports() -> None:
    rows, facts = draw(), dict[str, Any]()
    found = average(Krum(3), rows, facts=facts)
    (client,) = facts["kept"]
    assert np.array_equal(found, rows[client - 100])


def test_the_radius_of_centred_clipping_can_follow_the_reports() -> None:
    rows = draw()
    centre = reference.median(rows)
    radius = 0.5 * float(np.median([reference.norm(row - centre) for row in rows]))
    expected = reference.centred_clipping(rows, centre, radius, 1)
    np.testing.assert_allclose(average(CentredClipping(ratio=0.5, iterations=1), rows), expected, rtol=1e-9)


@pytest.mark.parametrize("weights", [np.ones(11), np.arange(1, 12) / 16])
@pytest.mark.parametrize("rule", [Clipped(bound=2.0), Clipped(ratio=0.6)])
def test_clipped_reports_are_weighted(rule: Clipped, weights: np.ndarray) -> None:
    rows = draw()
    bound = rule.bound or 0.6 * float(np.median([reference.norm(row) for row in rows]))
    short = np.array([row * min(1.0, bound / reference.norm(row)) for row in rows])
    np.testing.assert_allclose(average(rule, rows, weights), weights @ short / weights.sum(), rtol=1e-9)


@pytest.mark.parametrize("name", ALL)
def test_a_bucket_of_one_is_no_bucket_and_larger_ones_are_means(name: str) -> None:
    rows, rule = draw(), ALL[name]
    options = dataclasses.asdict(rule)  # pyright: ignore[reportArgumentType] - every rule is a dataclass
    assert np.array_equal(average(type(rule)(**options | {"bucketing": 1}), rows), average(rule, rows))
    if isinstance(rule, Krum | Bulyan):
        options |= {"hostile": 0, "keep": 1} if isinstance(rule, Krum) else {"hostile": 0}
    seen = [average(type(rule)(**options | {"bucketing": 2}), rows, seed=seed) for seed in (5, 5, 6)]
    assert np.array_equal(seen[0], seen[1])
    assert not np.allclose(seen[0], seen[2]), "another seed makes other buckets"


def test_one_bucket_of_all_reports_is_the_plain_mean() -> None:
    np.testing.assert_allclose(average(Median(bucketing=11), draw()), average(PLAIN_MEAN, draw()), rtol=1e-12)


def test_buckets_are_means_of_two_reports_and_each_report_is_in_one() -> None:
    """The trimmed mean with share 0 of six buckets: five pairs and one report that counts twice as much."""
    rows = draw()
    found = average(Trimmed(0.0, bucketing=2), rows)
    candidates = [(reference.mean(rows) * 11 + rows[alone]) / 12 for alone in range(11)]
    assert sum(np.allclose(found, one) for one in candidates) == 1


@pytest.mark.parametrize("rule", [Krum(5), Krum(2, keep=10), Bulyan(3), Krum(1, bucketing=3)])
def test_a_round_with_too_few_reports_uses_the_median_and_says_so(rule: RobustRule) -> None:
    rows, facts = draw(), dict[str, Any]()
    assert rule.least_reports > len(rows)
    found = average(rule, rows, facts=facts)
    assert facts == {"mean_fallback": "median"}
    if rule.bucketing == 1:
        np.testing.assert_allclose(found, reference.median(rows))


def test_distances_are_over_all_fields_together() -> None:
    """Each field alone is within the bound; both together are not."""
    rows = np.ones((3, sum(WIDTHS)))
    bound = 3.0
    assert max(WIDTHS) ** 0.5 < bound < sum(WIDTHS) ** 0.5
    np.testing.assert_allclose(average(Clipped(bound=bound), rows), rows[0] * bound / sum(WIDTHS) ** 0.5)


def test_centred_clipping_starts_at_the_momentum_of_fedcm() -> None:
    algorithm = ALGORITHMS["fedcm"]()
    server = algorithm.init_server(torch.zeros(11, dtype=torch.float64))
    sent = algorithm.broadcast(server._replace(momentum=torch.full((11,), 9.0, dtype=torch.float64)))
    expected: Any = algorithm.expected_report(sent)
    template = type(expected)(torch.zeros(11, dtype=torch.float64))
    rows, cohort = draw(), np.arange(11)
    rule = CentredClipping(radius=1.0, iterations=1)
    sums = make_aggregation(rule, 0, algorithm).start_round(template, sent, cohort, ROUND)
    sums.add_stack(cohort.tolist(), type(expected)(torch.from_numpy(rows)), [1.0] * 11)
    found = sums.compute(cohort, np.ones(11)).direction.numpy()
    np.testing.assert_allclose(found, reference.centred_clipping(rows, np.full(11, 9.0), 1.0, 1), rtol=1e-9)


@pytest.mark.parametrize("name", [name for name, kind in ALGORITHMS.items() if kind().expected_report.__func__])
def test_an_expected_report_has_the_fields_of_a_report(name: str) -> None:
    from fedcm.core.contract import find_violations

    assert not find_violations(ALGORITHMS[name]())


def test_a_subset_of_the_cohort_can_report() -> None:
    rows, cohort = draw(), np.arange(11)
    sums = make_aggregation(Median(), 0, ALGORITHMS["fedavg"]()).start_round(TEMPLATE, None, cohort, ROUND)
    here = np.array([1, 4, 9])
    for client in here.tolist():
        sums.add_stack([client], TwoFields(*[field[None] for field in split(rows[client])]), [1.0])
    found = sums.compute(here, np.ones(3))
    np.testing.assert_allclose(np.concatenate([part.numpy() for part in found]), reference.median(rows[here]))


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        ("clipped", {"bound": 1.0, "ratio": 1.0}, "exclude each other"),
        ("clipped", {"bound": 0.0}, "above 0"),
        ("centred-clipping", {"radius": 1.0, "ratio": 1.0}, "exclude each other"),
        ("centred-clipping", {"iterations": 0}, "at least 1"),
        ("trimmed", {"share": 0.5}, "below 0.5"),
        ("geometric-median", {"smoothing": 0.0}, "above 0"),
        ("krum", {"hostile": -1}, "at least 0"),
        ("median", {"bucketing": 0}, "at least 1"),
    ],
)
def test_options_out_of_range_raise(kind: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        MEANS[kind](**options)
