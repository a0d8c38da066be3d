"""FedDyn (Acar et al. 2021, Algorithm 1): its corrections, their meaning, and that it has no drift.

h_i stands for the paper's ∇L_i(θ_i): it starts at 0 and follows h_i ← h_i − a(y_i − x). All tests have server rate 1:
the paper has no other.
"""

import pytest
import torch
from federation import Federation, draw_cohorts, draw_fixed_cohorts, list_everyone, make_decaying_rates, make_quadratics
from hypothesis import given, settings
from hypothesis import strategies as st
from identities import (
    check_correction_is_the_mean_of_all_corrections,
    check_corrections_are_gradients_at_local_optima,
    check_feddyn_local_steps,
    check_feddyn_step,
    check_reaches_the_optimum,
    compute_distance_from_optimum,
)

from fedcm.algorithms import FedAvg, FedDyn

STEPS = [1, 3, 7, 2, 5, 4]
DTYPES = [torch.float64, torch.float32]


def make_federation(dtype: torch.dtype = torch.float64, alpha: float = 0.5) -> Federation:
    """Unequal K_i, decaying η_l, cohorts of varying size, noise, decay in the client's own gradient."""
    return Federation(
        FedDyn(alpha),
        make_quadratics(6, dtype=dtype),
        draw_cohorts(6, 20, 0.4),
        STEPS,
        make_decaying_rates(0.1, 0.95, 20),
        noise=1.0,
        weight_decay=0.01,
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_server_correction_is_the_mean_of_all_client_corrections(dtype: torch.dtype) -> None:
    check_correction_is_the_mean_of_all_corrections(make_federation(dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("alpha", [0.1, 1.0])
def test_clients_and_server_step_as_in_the_paper(dtype: torch.dtype, alpha: float) -> None:
    check_feddyn_step(make_federation(dtype, alpha))
    check_feddyn_local_steps(make_federation(dtype, alpha))


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    alpha=st.floats(0.05, 2.0),
    steps=st.lists(st.integers(1, 6), min_size=4, max_size=4),
    client_lrs=st.lists(st.floats(0.02, 0.2), min_size=6, max_size=6),
    cohorts=st.lists(st.sets(st.integers(0, 3)).map(sorted), min_size=6, max_size=6),
)
def test_the_corrections_agree_for_any_cohorts_step_counts_and_learning_rates(
    alpha: float, steps: list[int], client_lrs: list[float], cohorts: list[list[int]]
) -> None:
    check_correction_is_the_mean_of_all_corrections(
        Federation(FedDyn(alpha), make_quadratics(4), cohorts, steps, client_lrs, noise=1.0)
    )


def test_corrections_are_gradients_if_clients_solve_their_problems() -> None:
    check_corrections_are_gradients_at_local_optima(
        Federation(FedDyn(alpha=1.0), make_quadratics(4), draw_fixed_cohorts(4, 10, 2), [120] * 4, [0.3] * 10)
    )


@pytest.mark.parametrize("steps", [[30] * 6, [30, 10, 20, 15, 40, 25]], ids=["equal K", "unequal K"])
@pytest.mark.parametrize(
    "cohorts", [list_everyone(6, 60), draw_fixed_cohorts(6, 200, 2)], ids=["everyone", "two of six"]
)
def test_it_reaches_the_optimum_of_heterogeneous_quadratics_where_fedavg_does_not(
    steps: list[int], cohorts: list[list[int]]
) -> None:
    client_lrs = [0.1] * len(cohorts)
    check_reaches_the_optimum(Federation(FedDyn(alpha=1.0), make_quadratics(6), cohorts, steps, client_lrs))
    assert compute_distance_from_optimum(Federation(FedAvg(), make_quadratics(6), cohorts, steps, client_lrs)) > 0.05
