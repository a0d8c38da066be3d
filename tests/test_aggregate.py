"""The mean of reports does not depend on how it was reached."""

from fractions import Fraction
from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedcm.aggregate import ExactMean, OutOfRange


class Pair(NamedTuple):
    first: Tensor
    second: Tensor


def mean_of(reports: list[Pair], weights: list[float] | None = None) -> Pair:
    weights = weights or [1.0] * len(reports)
    mean = ExactMean(reports[0], len(reports))
    for client, report in enumerate(reports):
        mean.add(client, report, weights[client])
    return mean.value(sum(weights))


@given(st.integers(0, 10_000), st.integers(1, 9), st.sampled_from([torch.float32, torch.float64]))
def test_the_mean_has_the_same_bits_in_every_order(seed: int, clients: int, dtype: torch.dtype) -> None:
    draw = torch.Generator().manual_seed(seed)
    scale = 10.0 ** torch.randint(-8, 4, (clients, 1), generator=draw)
    reports = [Pair(row, -row * 3) for row in (torch.randn(clients, 33, generator=draw) * scale).to(dtype)]
    order = torch.randperm(clients, generator=draw).tolist()
    for one, other in zip(mean_of(reports), mean_of([reports[k] for k in order]), strict=True):
        assert torch.equal(one, other)
        assert one.dtype == dtype


@given(st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=20))
def test_float64_means_are_the_true_means_to_the_last_bits(values: list[float]) -> None:
    truth = sum(map(Fraction, values)) / len(values)
    got = mean_of([Pair(torch.tensor([v], dtype=torch.float64), torch.zeros(1)) for v in values]).first.item()
    assert abs(Fraction(got) - truth) <= Fraction(2) ** -78 + abs(truth) * Fraction(2) ** -51


def test_a_float32_mean_is_off_by_less_than_half_a_unit_of_the_fixed_point() -> None:
    reports = [Pair(torch.tensor([1e-9]), torch.tensor([0.1])) for _ in range(7)]
    mean = mean_of(reports)
    assert abs(mean.first.item() - 1e-9) <= 2.0**-41 + 1e-16
    assert mean.second.item() == torch.tensor(0.1).item()


def test_weights_count_examples() -> None:
    reports = [Pair(torch.tensor([1.0]), torch.tensor([0.0])), Pair(torch.tensor([4.0]), torch.tensor([3.0]))]
    mean = mean_of(reports, weights=[0.25, 0.5])
    assert mean.first.item() == 3.0
    assert mean.second.item() == 2.0


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), 3e6])
def test_a_report_that_does_not_fit_is_an_error_that_names_the_client(bad: float) -> None:
    mean = ExactMean(Pair(torch.zeros(3), torch.zeros(3)), 2)
    mean.add(4, Pair(torch.zeros(3), torch.zeros(3)))
    with pytest.raises(OutOfRange, match=r"'second' that client 17 reported") as error:
        mean.add(17, Pair(torch.zeros(3), torch.tensor([0.0, bad, 1.0])))
    assert error.value.client == 17


def test_the_largest_reports_of_a_whole_cohort_still_fit() -> None:
    cohort = 1000
    mean = ExactMean(Pair(torch.zeros(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)), cohort)
    largest = torch.tensor([mean.limit * 0.999], dtype=torch.float64)
    for client in range(cohort):
        mean.add(client, Pair(largest, -largest))
    assert mean.value(cohort).first.item() == pytest.approx(largest.item(), rel=1e-12)
    assert mean.value(cohort).second.item() == pytest.approx(-largest.item(), rel=1e-12)


def test_the_totals_of_two_workers_add_up_to_the_totals_of_one() -> None:
    draw = torch.Generator().manual_seed(4)
    reports = [Pair(torch.randn(5, generator=draw), torch.randn(5, generator=draw)) for _ in range(7)]
    one, here, there = (ExactMean(reports[0], 7) for _ in range(3))
    for client, report in enumerate(reports):
        one.add(client, report)
        (here if client % 3 else there).add(client, report)
    for total, other in zip(here.totals, there.totals, strict=True):
        total += other
    for a, b in zip(one.value(7), here.value(7), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("cohort", [1, 4096, 10**5, 10**6])
def test_entries_of_a_thousand_fit_whatever_the_cohort(cohort: int) -> None:
    mean = ExactMean(Pair(torch.zeros(1), torch.zeros(1)), cohort)
    mean.add(0, Pair(torch.tensor([1000.0]), torch.tensor([-1000.0])))
