"""FedAvg (McMahan et al. 2017): averaging of models, its limits, and the drift that other algorithms correct."""

import pytest
import torch
from federation import Federation, draw_cohorts, find_optimum, list_everyone, make_decaying_rates, make_quadratics
from identities import (
    assert_close,
    check_fedavg_step,
    compute_distance_from_optimum,
    compute_fedavg_limit,
    compute_final_params,
)

from fedcm.algorithms import FedAvg

STEPS = [1, 3, 7, 2, 5]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("server_lr", [1.0, 0.7])
def test_the_server_moves_by_the_mean_movement(dtype: torch.dtype, server_lr: float) -> None:
    check_fedavg_step(
        Federation(
            FedAvg(),
            make_quadratics(5, dtype=dtype),
            draw_cohorts(5, 20, 0.5),
            STEPS,
            make_decaying_rates(0.1, 0.95, 20),
            server_lr=server_lr,
            noise=1.0,
            weight_decay=0.01,
        )
    )


def test_one_step_with_full_participation_is_gradient_descent() -> None:
    clients = make_quadratics(5)
    federation = Federation(FedAvg(), clients, list_everyone(5, 30), [1] * 5, [0.2] * 30)
    params = federation.start()
    for past in federation.run():
        params = params - 0.2 * torch.stack([client.gradient(params) for client in clients]).mean(0)
        assert_close(past.after.params, params, f"round {past.round.index}")


@pytest.mark.parametrize("steps", [[10] * 5, [2, 10, 5, 3, 8]], ids=["equal K", "unequal K"])
def test_with_many_local_steps_the_limit_is_not_the_optimum(steps: list[int]) -> None:
    clients = make_quadratics(5)
    federation = Federation(FedAvg(), clients, list_everyone(5, 100), steps, [0.1] * 100)
    assert compute_distance_from_optimum(federation) > 0.1
    biased = compute_fedavg_limit(clients, steps, 0.1)
    assert float((biased - find_optimum(clients)).norm()) > 0.1
    assert float((compute_final_params(federation) - biased).norm()) <= 1e-9
