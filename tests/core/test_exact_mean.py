"""The mean of reports has the same bits in every order, grouping and division over workers."""

from fractions import Fraction
from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedcm.core.exact_mean import ExactMean, OutOfRange


class Pair(NamedTuple):
    first: Tensor
    second: Tensor


def compute_mean(reports: list[Pair], weights: list[float] | None = None) -> Pair:
    weights = weights or [1.0] * len(reports)
    mean = ExactMean(reports[0], len(reports))
    for client, report in enumerate(reports):
        mean.add(client, report, weights[client])
    return mean.compute(sum(weights))


def combine_workers(first_worker: ExactMean, second_worker: ExactMean) -> ExactMean:
    """Combine the totals of two workers, as at the end of a round."""
    limbs = max(first_worker.high_limbs, second_worker.high_limbs)
    for total, other in zip(
        first_worker.totals + first_worker.allocate_high_limbs(limbs),
        second_worker.totals + second_worker.allocate_high_limbs(limbs),
        strict=True,
    ):
        total += other
    return first_worker


@given(st.integers(0, 10_000), st.integers(1, 9), st.sampled_from([torch.float32, torch.float64]))
def test_the_mean_has_the_same_bits_in_every_order(seed: int, clients: int, dtype: torch.dtype) -> None:
    draw = torch.Generator().manual_seed(seed)
    scale = 10.0 ** torch.randint(-8, 4, (clients, 1), generator=draw)
    reports = [Pair(row, -row * 3) for row in (torch.randn(clients, 33, generator=draw) * scale).to(dtype)]
    order = torch.randperm(clients, generator=draw).tolist()
    for one, other in zip(compute_mean(reports), compute_mean([reports[k] for k in order]), strict=True):
        assert torch.equal(one, other)
        assert one.dtype == dtype


@given(st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=20))
def test_float64_means_are_the_true_means_to_the_last_bits(values: list[float]) -> None:
    truth = sum(map(Fraction, values)) / len(values)
    got = compute_mean([Pair(torch.tensor([v], dtype=torch.float64), torch.zeros(1)) for v in values]).first.item()
    assert abs(Fraction(got) - truth) <= Fraction(2) ** -86 + abs(truth) * Fraction(2) ** -51


def test_a_float32_mean_is_off_by_less_than_half_a_unit_of_the_fixed_point() -> None:
    reports = [Pair(torch.tensor([1e-9]), torch.tensor([0.1])) for _ in range(7)]
    mean = compute_mean(reports)
    assert abs(mean.first.item() - 1e-9) <= 2.0**-49 + 1e-16
    assert mean.second.item() == torch.tensor(0.1).item()


def test_reports_are_weighted() -> None:
    reports = [Pair(torch.tensor([1.0]), torch.tensor([0.0])), Pair(torch.tensor([4.0]), torch.tensor([3.0]))]
    mean = compute_mean(reports, weights=[0.25, 0.5])
    assert mean.first.item() == 3.0
    assert mean.second.item() == 2.0


@pytest.mark.parametrize(
    ("cohort_size", "entry", "limbs"),
    [
        (1, 2.0**14 - 1, 0),
        (1, 2.0**14, 1),  # a unit is 2⁻⁴⁸, and one limb has 62 bits
        (2, 2.0**13 - 1, 0),
        (2, 2.0**13, 1),
        (3, 2.0**12 - 1, 0),
        (3, 2.0**12, 1),
        (4, 2.0**12 - 1, 0),
        (4, 2.0**12, 1),
        (4, -(2.0**31) + 128, 1),
        (4, 2.0**31, 2),  # two digits of 40 bits hold ±2⁷⁹ units
        (4, 2.0**71, 3),
    ],
)
def test_limbs_are_allocated_for_the_largest_entry(cohort_size: int, entry: float, limbs: int) -> None:
    report = Pair(torch.tensor([1.0, entry]), torch.zeros(3))
    mean = ExactMean(report, cohort_size)
    assert mean.high_limbs == 0
    mean.add(0, report)
    assert mean.high_limbs == limbs
    assert [len(total) for total in mean.totals] == [2, 3], "one limb for each field that is not of float64"
    assert mean.compute(1.0).first.tolist() == [1.0, entry]


def test_a_report_without_fields_has_a_mean_without_fields() -> None:
    class Nothing(NamedTuple):
        pass

    mean = ExactMean(Nothing(), 2)
    mean.add(0, Nothing())
    assert mean.high_limbs == 0
    assert mean.totals == mean.allocate_high_limbs(2) == []
    assert mean.compute(1.0) == Nothing()


def test_weights_are_exact() -> None:
    """The number of examples is larger than a float32 can represent exactly."""
    count, reports = 2**28 + 1, [Pair(torch.tensor([2.0**10]), torch.zeros(1)), Pair(torch.zeros(1), torch.zeros(1))]
    mean = ExactMean(reports[0], 2)
    for client, report in enumerate(reports):
        mean.add(client, report, (count if client == 0 else 2**28) / 2**29)
    assert mean.totals[0].item() == 2**58 * count // 2**29


def test_float64_parts_below_the_fixed_point_unit_are_added() -> None:
    tiny = torch.tensor([2.0**-60, 3 * 2.0**-60, -(2.0**-70)], dtype=torch.float64)
    computed = compute_mean([Pair(tiny, tiny), Pair(3 * tiny, tiny)])
    assert computed.first.tolist() == (2 * tiny).tolist()


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_report_that_is_not_finite_is_an_error_that_names_the_client(bad: float) -> None:
    mean = ExactMean(Pair(torch.zeros(3), torch.zeros(3)), 2)
    mean.add(4, Pair(torch.zeros(3), torch.zeros(3)))
    with pytest.raises(OutOfRange, match=r"'second' that client 17 reported") as error:
        mean.add(17, Pair(torch.zeros(3), torch.tensor([0.0, bad, 1.0])))
    assert error.value.client == 17


def test_a_float64_entry_beyond_every_float32_is_an_error() -> None:
    zero = torch.zeros(1, dtype=torch.float64)
    mean = ExactMean(Pair(zero, zero), 2)
    mean.add(0, Pair(zero + 2.0**127, zero))
    with pytest.raises(OutOfRange, match=r"client 1 reported must stay below 3.4e\+38, but reaches 3.4e\+38"):
        mean.add(1, Pair(zero, zero - 2.0**128))


def test_an_error_in_one_row_adds_no_row_of_the_stack() -> None:
    mean = ExactMean(Pair(torch.zeros(1), torch.zeros(1)), 3)
    mean.add(0, Pair(torch.tensor([1.0]), torch.tensor([2.0])))
    with pytest.raises(OutOfRange, match="client 8"):
        mean.add_stack([7, 8], Pair(torch.ones(2, 1), torch.tensor([[1.0], [torch.inf]])), [1.0, 1.0])
    assert mean.compute(1.0).first.item() == 1.0
    assert mean.compute(1.0).second.item() == 2.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("cohort_size", [2, 1000, 2**20, 2**24])
def test_the_mean_of_the_largest_floats_is_exact_for_every_cohort_size(cohort_size: int, dtype: torch.dtype) -> None:
    for value in (7.0, 2.0**13, 3e6, 1.7e12, 4.3e22, 3.4e38):
        largest = torch.tensor([value], dtype=dtype)
        mean = ExactMean(Pair(largest, largest), cohort_size)
        for client in range(2):
            mean.add(client, Pair(largest, -largest))
        assert mean.compute(2).first.item() == largest.item()
        assert mean.compute(2).second.item() == -largest.item()


@given(st.integers(0, 10_000), st.sampled_from([torch.float32, torch.float64]), st.sampled_from([6, 5000]))
def test_sums_of_large_entries_are_exact_in_every_order_and_grouping(
    seed: int, dtype: torch.dtype, cohort_size: int
) -> None:
    """Entries over the whole range of float32, some of which cancel; a stack's rows share its limbs."""
    draw = torch.Generator().manual_seed(seed)
    scale = 2.0 ** torch.randint(-30, 126, (6, 5), generator=draw, dtype=torch.float64)
    rows = (torch.randn(6, 5, generator=draw, dtype=torch.float64) * scale).clamp(-(2.0**127), 2.0**127).to(dtype)
    rows[3] = -rows[2]
    one_by_one, first_worker, second_worker = (ExactMean(Pair(rows[0], rows[0]), cohort_size) for _ in range(3))
    for client in torch.randperm(6, generator=draw).tolist():
        one_by_one.add(client, Pair(rows[client], rows[client]))
    first_worker.add_stack([0, 1, 2, 3], Pair(rows[:4], rows[:4]), [1.0] * 4)
    second_worker.add_stack([4, 5], Pair(rows[4:], rows[4:]), [1.0] * 2)
    assert torch.equal(combine_workers(first_worker, second_worker).compute(6).first, one_by_one.compute(6).first)
    for entries, got in zip(rows.T.tolist(), one_by_one.compute(6).first.double().tolist(), strict=True):
        truth = sum(map(Fraction, entries)) / 6
        fine = Fraction(2) ** (-85 if dtype == torch.float64 else -48)
        relative = Fraction(2) ** (-50 if dtype == torch.float64 else -23)
        assert abs(Fraction(got) - truth) <= fine + abs(truth) * relative


def test_unneeded_limbs_do_not_change_the_bits() -> None:
    draw = torch.Generator().manual_seed(1)
    rows = torch.randn(4, 9, generator=draw, dtype=torch.float64) * 1000
    plain, widened = (ExactMean(Pair(rows[0], rows[0]), 4) for _ in range(2))
    widened.allocate_high_limbs(3)
    for client, row in enumerate(rows):
        plain.add(client, Pair(row, -row))
        widened.add(client, Pair(row, -row))
    assert plain.high_limbs == 0
    assert torch.equal(plain.compute(4).first, widened.compute(4).first)


def test_two_workers_give_the_same_mean_as_one() -> None:
    draw = torch.Generator().manual_seed(4)
    reports = [Pair(torch.randn(5, generator=draw), torch.randn(5, generator=draw)) for _ in range(7)]
    one, first_worker, second_worker = (ExactMean(reports[0], 7) for _ in range(3))
    for client, report in enumerate(reports):
        one.add(client, report)
        (first_worker if client % 3 else second_worker).add(client, report)
    for a, b in zip(one.compute(7), combine_workers(first_worker, second_worker).compute(7), strict=True):
        assert torch.equal(a, b)
