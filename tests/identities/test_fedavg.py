"""FedAvg (McMahan et al. 2017): averaging of models, its limits, and the drift that the other algorithms repair."""

import pytest
import torch
from federation import Federation, decaying, everyone, optimum, quadratics, some
from identities import assert_close, check_fedavg_step, distance_from_optimum, fedavg_limit, final_params

from fedcm.algorithms import FedAvg

STEPS = [1, 3, 7, 2, 5]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("server_lr", [1.0, 0.7])
def test_the_server_steps_by_the_mean_of_all_movements(dtype: torch.dtype, server_lr: float) -> None:
    check_fedavg_step(
        Federation(
            FedAvg(),
            quadratics(5, dtype=dtype),
            some(5, 20, 0.5),
            STEPS,
            decaying(0.1, 0.95, 20),
            server_lr=server_lr,
            noise=1.0,
            weight_decay=0.01,
        )
    )


def test_one_step_of_everyone_is_gradient_descent_on_the_mean_loss() -> None:
    clients = quadratics(5)
    federation = Federation(FedAvg(), clients, everyone(5, 30), [1] * 5, [0.2] * 30)
    params = federation.start()
    for past in federation.run():
        params = params - 0.2 * torch.stack([client.gradient(params) for client in clients]).mean(0)
        assert_close(past.after.params, params, f"round {past.round.index}")


@pytest.mark.parametrize("steps", [[10] * 5, [2, 10, 5, 3, 8]], ids=["equal K", "unequal K"])
def test_with_many_local_steps_it_stands_still_away_from_the_optimum(steps: list[int]) -> None:
    clients = quadratics(5)
    federation = Federation(FedAvg(), clients, everyone(5, 100), steps, [0.1] * 100)
    assert distance_from_optimum(federation) > 0.1
    biased = fedavg_limit(clients, steps, 0.1)
    assert float((biased - optimum(clients)).norm()) > 0.1
    assert float((final_params(federation) - biased).norm()) <= 1e-9
