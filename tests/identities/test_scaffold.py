"""SCAFFOLD (Karimireddy et al. 2020, Algorithm 1, both options): what its controls are, and that it has no drift."""

from typing import Literal

import pytest
import torch
from federation import Federation, draw_cohorts, draw_fixed_cohorts, list_everyone, make_decaying_rates, make_quadratics
from hypothesis import given, settings
from hypothesis import strategies as st
from identities import (
    check_control_is_the_mean_of_all_controls,
    check_controls_are_client_gradients,
    check_fedavg_step,
    check_options_agree,
    check_reaches_the_optimum,
    check_scaffold_step,
    compute_distance_from_optimum,
)

from fedcm.algorithms import FedAvg, Scaffold

Option = Literal["I", "II"]
OPTIONS: list[Option] = ["I", "II"]
STEPS = [1, 3, 7, 2, 5, 4]


def make_federation(option: Option, dtype: torch.dtype = torch.float64, server_lr: float = 1.0) -> Federation:
    """Unequal K_i, decaying η_l, cohorts of varying size, noise, decay in the client's own gradient."""
    return Federation(
        Scaffold(option),
        make_quadratics(6, dtype=dtype),
        draw_cohorts(6, 20, 0.3),
        STEPS,
        make_decaying_rates(0.1, 0.95, 20),
        server_lr=server_lr,
        noise=1.0,
        weight_decay=0.01,
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("option", OPTIONS)
class TestIdentities:
    def test_the_server_control_is_the_mean_of_all_client_controls(self, option: Option, dtype: torch.dtype) -> None:
        check_control_is_the_mean_of_all_controls(make_federation(option, dtype))

    def test_controls_are_client_gradients(self, option: Option, dtype: torch.dtype) -> None:
        check_controls_are_client_gradients(make_federation(option, dtype))

    @pytest.mark.parametrize("server_lr", [1.0, 0.7])
    def test_the_server_moves_by_the_mean_corrected_movement(
        self, option: Option, dtype: torch.dtype, server_lr: float
    ) -> None:
        check_scaffold_step(make_federation(option, dtype, server_lr))


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    option=st.sampled_from(OPTIONS),
    steps=st.lists(st.integers(1, 6), min_size=4, max_size=4),
    client_lrs=st.lists(st.floats(0.02, 0.2), min_size=6, max_size=6),
    cohorts=st.lists(st.sets(st.integers(0, 3)).map(sorted), min_size=6, max_size=6),
)
def test_the_controls_agree_for_any_cohorts_step_counts_and_learning_rates(
    option: Option, steps: list[int], client_lrs: list[float], cohorts: list[list[int]]
) -> None:
    federation = Federation(Scaffold(option), make_quadratics(4), cohorts, steps, client_lrs, noise=1.0)
    if any(cohorts):  # if all cohorts are empty, both are 0, and 0 has no scale
        check_control_is_the_mean_of_all_controls(federation)
        check_controls_are_client_gradients(federation)


@pytest.mark.parametrize("cohorts", [list_everyone(6, 30), draw_cohorts(6, 30, 0.4)], ids=["full", "partial"])
def test_the_options_agree_at_one_full_batch_step(cohorts: list[list[int]]) -> None:
    check_options_agree(
        Federation(Scaffold(), make_quadratics(6), cohorts, [1] * 6, make_decaying_rates(0.1, 0.97, 30))
    )


@pytest.mark.parametrize("option", OPTIONS)
def test_with_full_participation_and_equal_steps_the_corrections_cancel(option: Option) -> None:
    """mean_i (c − c_i) = 0, so the server step is that of FedAvg for the recorded gradients."""
    check_fedavg_step(
        Federation(
            Scaffold(option),
            make_quadratics(6),
            list_everyone(6, 20),
            [4] * 6,
            make_decaying_rates(0.1, 0.95, 20),
            noise=1.0,
        )
    )


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("steps", [[8] * 6, [8, 2, 5, 3, 10, 6]], ids=["equal K", "unequal K"])
@pytest.mark.parametrize(
    "cohorts", [list_everyone(6, 250), draw_fixed_cohorts(6, 600, 2)], ids=["everyone", "two of six"]
)
def test_it_reaches_the_optimum_of_heterogeneous_quadratics_where_fedavg_does_not(
    option: Option, steps: list[int], cohorts: list[list[int]]
) -> None:
    client_lrs = [0.05] * len(cohorts)
    check_reaches_the_optimum(Federation(Scaffold(option), make_quadratics(6), cohorts, steps, client_lrs))
    assert compute_distance_from_optimum(Federation(FedAvg(), make_quadratics(6), cohorts, steps, client_lrs)) > 0.02
