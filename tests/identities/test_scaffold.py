"""SCAFFOLD (Karimireddy et al. 2020, Algorithm 1, both options): what its controls are, and that it has no drift."""

from typing import Literal

import pytest
import torch
from federation import Federation, decaying, everyone, in_turn, quadratics, some
from hypothesis import given, settings
from hypothesis import strategies as st
from identities import (
    check_control_is_the_clients_own_gradient,
    check_control_is_the_mean_of_all_controls,
    check_fedavg_step,
    check_options_agree,
    check_reaches_the_optimum,
    check_scaffold_step,
    distance_from_optimum,
)

from fedcm.algorithms import FedAvg, Scaffold

Option = Literal["I", "II"]
OPTIONS: list[Option] = ["I", "II"]
STEPS = [1, 3, 7, 2, 5, 4]


def partial(option: Option, dtype: torch.dtype = torch.float64, server_lr: float = 1.0) -> Federation:
    """Unequal K_i, decaying η_l, cohorts that vary, noise, decay in the client's own gradient."""
    return Federation(
        Scaffold(option),
        quadratics(6, dtype=dtype),
        some(6, 20, 0.3),
        STEPS,
        decaying(0.1, 0.95, 20),
        server_lr=server_lr,
        noise=1.0,
        weight_decay=0.01,
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("option", OPTIONS)
class TestIdentities:
    def test_the_servers_control_is_the_mean_of_all_clients_controls(self, option: Option, dtype: torch.dtype) -> None:
        check_control_is_the_mean_of_all_controls(partial(option, dtype))

    def test_a_control_is_the_clients_own_gradient(self, option: Option, dtype: torch.dtype) -> None:
        check_control_is_the_clients_own_gradient(partial(option, dtype))

    @pytest.mark.parametrize("server_lr", [1.0, 0.7])
    def test_the_server_steps_by_the_mean_of_corrected_walks(
        self, option: Option, dtype: torch.dtype, server_lr: float
    ) -> None:
        check_scaffold_step(partial(option, dtype, server_lr))


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
    federation = Federation(Scaffold(option), quadratics(4), cohorts, steps, client_lrs, noise=1.0)
    if any(cohorts):  # with none at all both are 0, and 0 has no scale
        check_control_is_the_mean_of_all_controls(federation)
        check_control_is_the_clients_own_gradient(federation)


@pytest.mark.parametrize("cohorts", [everyone(6, 30), some(6, 30, 0.4)], ids=["full", "partial"])
def test_the_options_agree_at_one_full_batch_step(cohorts: list[list[int]]) -> None:
    check_options_agree(Federation(Scaffold(), quadratics(6), cohorts, [1] * 6, decaying(0.1, 0.97, 30)))


@pytest.mark.parametrize("option", OPTIONS)
def test_with_everyone_at_equal_step_counts_the_corrections_cancel_on_the_server(option: Option) -> None:
    """mean_i (c − c_i) = 0, so the server's step is that of FedAvg from the gradients that were seen."""
    check_fedavg_step(
        Federation(Scaffold(option), quadratics(6), everyone(6, 20), [4] * 6, decaying(0.1, 0.95, 20), noise=1.0)
    )


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("steps", [[8] * 6, [8, 2, 5, 3, 10, 6]], ids=["equal K", "unequal K"])
@pytest.mark.parametrize("cohorts", [everyone(6, 250), in_turn(6, 600, 2)], ids=["everyone", "two of six"])
def test_it_reaches_the_optimum_of_heterogeneous_quadratics_where_fedavg_does_not(
    option: Option, steps: list[int], cohorts: list[list[int]]
) -> None:
    client_lrs = [0.05] * len(cohorts)
    check_reaches_the_optimum(Federation(Scaffold(option), quadratics(6), cohorts, steps, client_lrs))
    assert distance_from_optimum(Federation(FedAvg(), quadratics(6), cohorts, steps, client_lrs)) > 0.02
