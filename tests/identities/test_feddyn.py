"""FedDyn (Acar et al. 2021, Algorithm 1): its corrections, their meaning, and that it has no drift.

h_i stands for the paper's ∇L_i(θ_i): it starts at 0 and follows h_i ← h_i − a(y_i − x). All tests have server rate 1:
the paper has no other.
"""

import pytest
import torch
from federation import Federation, decaying, everyone, in_turn, quadratics, some
from hypothesis import given, settings
from hypothesis import strategies as st
from identities import (
    check_correction_is_the_gradient_where_the_client_stopped,
    check_correction_is_the_mean_of_all_corrections,
    check_feddyn_local_walk,
    check_feddyn_step,
    check_reaches_the_optimum,
    distance_from_optimum,
)

from fedcm.algorithms import FedAvg, FedDyn

STEPS = [1, 3, 7, 2, 5, 4]
DTYPES = [torch.float64, torch.float32]


def partial(dtype: torch.dtype = torch.float64, alpha: float = 0.5) -> Federation:
    """Unequal K_i, decaying η_l, cohorts that vary, noise, decay in the client's own gradient."""
    return Federation(
        FedDyn(alpha),
        quadratics(6, dtype=dtype),
        some(6, 20, 0.4),
        STEPS,
        decaying(0.1, 0.95, 20),
        noise=1.0,
        weight_decay=0.01,
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_servers_correction_is_the_mean_of_all_clients_corrections(dtype: torch.dtype) -> None:
    check_correction_is_the_mean_of_all_corrections(partial(dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("alpha", [0.1, 1.0])
def test_clients_and_server_step_as_the_paper_writes(dtype: torch.dtype, alpha: float) -> None:
    check_feddyn_step(partial(dtype, alpha))
    check_feddyn_local_walk(partial(dtype, alpha))


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
        Federation(FedDyn(alpha), quadratics(4), cohorts, steps, client_lrs, noise=1.0)
    )


def test_when_clients_solve_their_problem_the_correction_is_the_gradient_where_they_stopped() -> None:
    check_correction_is_the_gradient_where_the_client_stopped(
        Federation(FedDyn(alpha=1.0), quadratics(4), in_turn(4, 10, 2), [120] * 4, [0.3] * 10)
    )


@pytest.mark.parametrize("steps", [[30] * 6, [30, 10, 20, 15, 40, 25]], ids=["equal K", "unequal K"])
@pytest.mark.parametrize("cohorts", [everyone(6, 60), in_turn(6, 200, 2)], ids=["everyone", "two of six"])
def test_it_reaches_the_optimum_of_heterogeneous_quadratics_where_fedavg_does_not(
    steps: list[int], cohorts: list[list[int]]
) -> None:
    client_lrs = [0.1] * len(cohorts)
    check_reaches_the_optimum(Federation(FedDyn(alpha=1.0), quadratics(6), cohorts, steps, client_lrs))
    assert distance_from_optimum(Federation(FedAvg(), quadratics(6), cohorts, steps, client_lrs)) > 0.05
