"""FedCM: Lemma 1, the lemma of the sequence z_t, and the two algorithms that are its limits."""

import pytest
import torch
from federation import (
    Federation,
    draw_cohorts,
    draw_fixed_cohorts,
    find_optimum,
    list_everyone,
    make_decaying_rates,
    make_quadratics,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from identities import (
    assert_close,
    check_fedcm_server_step,
    check_lemma_1,
    check_same_trajectory,
    check_z_descends,
    compute_fedavg_limit,
    compute_final_params,
)

from fedcm.algorithms import FedAvg, FedCM

STEPS = [1, 3, 7, 2, 5]
DTYPES = [torch.float64, torch.float32]


def make_federation(alpha: float, dtype: torch.dtype = torch.float64, server_lr: float = 1.0) -> Federation:
    """Unequal K_i, decaying η_l, cohorts of varying size, noise, decay and clipping in the client's own gradient."""
    return Federation(
        FedCM(alpha),
        make_quadratics(5, dtype=dtype),
        draw_cohorts(5, 20, 0.5),
        STEPS,
        make_decaying_rates(0.1, 0.95, 20),
        server_lr=server_lr,
        noise=1.0,
        weight_decay=0.01,
        clip=3.0,
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.5, 1.0])
def test_momentum_is_the_moving_average_of_minibatch_gradients(alpha: float, dtype: torch.dtype) -> None:
    check_lemma_1(make_federation(alpha, dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("server_lr", [1.0, 0.7])
def test_the_server_steps_along_the_new_momentum(server_lr: float, dtype: torch.dtype) -> None:
    check_fedcm_server_step(make_federation(0.1, dtype, server_lr))


def test_at_equal_steps_and_server_rate_one_the_server_averages_models() -> None:
    check_fedcm_server_step(
        Federation(
            FedCM(0.1),
            make_quadratics(5),
            draw_fixed_cohorts(5, 20, 3),
            [4] * 5,
            make_decaying_rates(0.1, 0.95, 20),
            noise=1.0,
        )
    )


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    alpha=st.floats(0.01, 1.0),
    steps=st.lists(st.integers(1, 8), min_size=4, max_size=4),
    client_lrs=st.lists(st.floats(0.02, 0.3), min_size=6, max_size=6),
    cohorts=st.lists(st.sets(st.integers(0, 3)).map(sorted), min_size=6, max_size=6),
    seed=st.integers(0, 1000),
)
def test_lemma_1_holds_for_any_cohorts_step_counts_and_learning_rates(
    alpha: float, steps: list[int], client_lrs: list[float], cohorts: list[list[int]], seed: int
) -> None:
    check_lemma_1(
        Federation(FedCM(alpha), make_quadratics(4, seed=seed), cohorts, steps, client_lrs, noise=1.0, seed=seed)
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("server_lr", [1.0, 0.5])
@pytest.mark.parametrize("alpha", [0.1, 0.3, 1.0])
def test_z_descends_along_the_mean_gradient(alpha: float, server_lr: float, dtype: torch.dtype) -> None:
    clients = make_quadratics(6, dtype=dtype)
    check_z_descends(
        Federation(
            FedCM(alpha), clients, draw_fixed_cohorts(6, 25, 2), [4] * 6, [0.05] * 25, server_lr=server_lr, noise=1.0
        )
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("server_lr", [1.0, 0.7])
def test_alpha_one_is_fedavg_at_equal_steps(server_lr: float, dtype: torch.dtype) -> None:
    check_same_trajectory(
        *[
            Federation(
                algorithm,
                make_quadratics(5, dtype=dtype),
                draw_cohorts(5, 25, 0.5),
                [4] * 5,
                make_decaying_rates(0.1, 0.95, 25),
                server_lr=server_lr,
                noise=1.0,
            )
            for algorithm in (FedCM(alpha=1.0), FedAvg())
        ]
    )


@pytest.mark.parametrize("alpha", [0.1, 0.5, 1.0])
def test_one_full_batch_client_with_one_step_is_sgd_with_momentum(alpha: float) -> None:
    """m ← α g + (1 − α) m; torch's buffer is m/α, so its momentum is 1 − α and its lr is α·s·η_l, round by round."""
    client_lrs = make_decaying_rates(0.3, 0.97, 40)
    clients = make_quadratics(1)
    federation = Federation(FedCM(alpha), clients, list_everyone(1, 40), [1], client_lrs, server_lr=0.7)
    params = federation.start().requires_grad_()
    sgd = torch.optim.SGD([params], lr=1.0, momentum=1 - alpha)
    for past in federation.run():
        sgd.param_groups[0]["lr"] = alpha * 0.7 * past.round.client_lr
        params.grad = clients[0].gradient(params.detach())
        sgd.step()
        assert_close(past.after.params, params.detach(), f"round {past.round.index}")


@pytest.mark.parametrize("steps", [[10] * 5, [2, 10, 5, 3, 8]], ids=["equal K", "unequal K"])
def test_the_limit_is_that_of_fedavg_at_alpha_times_the_client_rate(steps: list[int]) -> None:
    """At the limit Δ is 0, and clients move as in FedAvg at rate α·η_l: with less drift, but with some."""
    clients = make_quadratics(5)
    federation = Federation(FedCM(alpha=0.2), clients, list_everyone(5, 400), steps, [0.05] * 400)
    ends = compute_final_params(federation)
    assert float((ends - compute_fedavg_limit(clients, steps, 0.2 * 0.05, own_steps=True)).norm()) <= 1e-9
    apart, fedavg_apart = (
        float((end - find_optimum(clients)).norm())
        for end in (ends, compute_fedavg_limit(clients, steps, 0.05, own_steps=True))
    )
    assert 1e-3 < apart < fedavg_apart / 3
