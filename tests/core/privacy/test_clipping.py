"""No report, whatever it is, changes the sum by more than the threshold."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcm.core.privacy.clipping import MOST_BITS, choose_grid_bits, clip_to_grid
from fedcm.core.privacy.discrete_gaussian import GREATEST_SIGMA

ENTRY = st.one_of(
    st.floats(-(2.0**127), 2.0**127, width=32),
    st.floats(-2, 2, width=32),
    st.sampled_from([0.0, 1e-45, -1e-30, 1.0, -1.0, 2.0**-20, 2.0**-21, 0.9999999, 3.4e38]),
)
REPORT = st.lists(st.lists(ENTRY, min_size=1, max_size=40), min_size=1, max_size=4)


@settings(deadline=None)
@given(REPORT, st.lists(st.floats(1e-300, 1e6), min_size=4, max_size=4), st.integers(4, MOST_BITS))
def test_the_integers_of_any_report_are_within_the_sensitivity(
    report: list[list[float]], thresholds: list[float], bits: int
) -> None:
    fields = [torch.tensor([field]) for field in report]
    clipped = clip_to_grid(fields, thresholds[: len(fields)], bits)
    assert sum(int(unit) ** 2 for field in clipped.fields for unit in field.reshape(-1).tolist()) <= 4**bits


@settings(deadline=None)
@given(REPORT, st.floats(0.01, 100))
def test_clipping_keeps_the_direction_and_small_reports(report: list[list[float]], threshold: float) -> None:
    """The literal rule in float64: v · min(1, C / ‖v‖), off by less than one step of the grid."""
    fields = [torch.tensor([field]) for field in report]
    clipped = clip_to_grid(fields, [threshold] * len(fields), MOST_BITS)
    joined = np.concatenate([np.array(field, dtype=np.float32).astype(np.longdouble) for field in report])
    norm = np.sqrt((joined * joined).sum())
    wanted = joined * min(np.longdouble(1), threshold / norm) if norm > 0 else joined
    got = np.concatenate([field.numpy().reshape(-1) for field in clipped.fields]) * threshold / 2**MOST_BITS
    assert np.abs(got - wanted.astype(np.float64)).max() <= threshold * 2.0**-MOST_BITS * 1.01 + threshold * 2e-6
    if abs(float(norm) / threshold - 1) > 1e-6:
        assert bool(clipped.is_below[0]) == (norm <= threshold)


def test_a_report_on_the_threshold_that_floats_round_up_is_shortened() -> None:
    """Entries of 1/√P: their true squares add up to a little more than 1 for some P."""
    for size in range(1, 400):
        entry = np.nextafter(1 / math.sqrt(size), 2)
        clipped = clip_to_grid([torch.full((1, size), entry, dtype=torch.float64)], [1.0], MOST_BITS)
        assert int(clipped.fields[0].square().sum()) <= 4**MOST_BITS


def test_clients_of_a_stack_are_clipped_one_by_one() -> None:
    rows = torch.tensor([[3.0, 4.0], [0.3, 0.4], [-30.0, 40.0]])
    clipped = clip_to_grid([rows], [1.0], MOST_BITS)
    assert torch.allclose(
        clipped.fields[0] / 2.0**MOST_BITS, torch.tensor([[0.6, 0.8], [0.3, 0.4], [-0.6, 0.8]]), atol=3e-6
    )
    assert clipped.is_below.tolist() == [False, True, False]


def test_fields_are_clipped_together_relative_to_their_thresholds() -> None:
    report = [torch.tensor([[3.0]]), torch.tensor([[400.0]])]
    clipped = clip_to_grid(report, [1.0, 100.0], MOST_BITS)
    assert [field.item() / 2**MOST_BITS for field in clipped.fields] == pytest.approx([0.6, 0.8], abs=3e-6)


@pytest.mark.parametrize("noise", [0.01, 0.7, 3.0, 63.0, 64.0, 1000.0])
def test_the_noise_fits_the_exact_sampler_at_any_multiplier(noise: float) -> None:
    bits = choose_grid_bits(noise)
    assert math.ceil(noise * 2**bits) <= GREATEST_SIGMA + 1
    assert bits == MOST_BITS or noise >= 63


def test_a_quotient_that_overflows_is_within_the_sensitivity() -> None:
    report = [torch.tensor([[1e38, -3.0, 0.0]]), torch.tensor([[-1e30]])]
    clipped = clip_to_grid(report, [1e-300, 1e-290], 20)
    assert 0 < sum(int(unit) ** 2 for field in clipped.fields for unit in field.reshape(-1).tolist()) <= 4**20
    assert not clipped.is_below.any()
