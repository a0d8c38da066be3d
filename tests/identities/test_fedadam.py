"""FedAdam (Reddi et al. 2021, Algorithm 2): v starts at τ², m at 0, no bias correction, τ outside the root."""

import pytest
import torch
from federation import Federation, draw_cohorts, list_everyone, make_decaying_rates, make_quadratics
from identities import assert_close, check_adam, compute_final_params

from fedcm.algorithms import FedAdam, FedAvg

STEPS = [1, 3, 7, 2, 5]


def make_federation(algorithm: FedAdam, dtype: torch.dtype = torch.float64) -> Federation:
    clients = make_quadratics(5, dtype=dtype)
    return Federation(
        algorithm,
        clients,
        draw_cohorts(5, 20, 0.5),
        STEPS,
        make_decaying_rates(0.1, 0.95, 20),
        server_lr=0.1,
        noise=1.0,
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("betas", [(0.9, 0.99), (0.0, 0.5), (0.5, 0.0)])
@pytest.mark.parametrize("tau", [0.01, 1.0])
def test_fedadam_is_adam_on_the_mean_movement(dtype: torch.dtype, betas: tuple[float, float], tau: float) -> None:
    check_adam(make_federation(FedAdam(*betas, tau=tau), dtype))


@pytest.mark.parametrize("tau", [1e-2, 1e-1])
def test_the_first_step_has_no_bias_correction_and_starts_at_tau_squared(tau: float) -> None:
    """x_1 = x_0 − s·(1−β1)·d / (√(β2·τ² + (1−β2)·d²) + τ), for one known movement d."""
    federation = Federation(FedAdam(0.9, 0.99, tau), make_quadratics(1), list_everyone(1, 1), [1], [0.1], server_lr=0.5)
    (past,) = federation.run()
    d = 0.1 * past.locals[0].gradients[0]
    expected = past.before.params - 0.5 * 0.1 * d / ((0.99 * tau**2 + 0.01 * d**2).sqrt() + tau)
    assert_close(past.after.params, expected, "after the first step")


def test_with_a_huge_tau_fedadam_is_fedavg_at_the_server_rate_over_two_tau() -> None:
    """√v + τ → 2τ when τ² is far above every squared movement and β2 → 1; with β1 = 0 averaging is left."""
    tau = 1e6
    clients, cohorts, client_lrs = make_quadratics(5), draw_cohorts(5, 15, 0.5), make_decaying_rates(0.1, 0.95, 15)
    adam = Federation(FedAdam(0.0, 1 - 1e-14, tau), clients, cohorts, STEPS, client_lrs, server_lr=2 * tau, noise=1.0)
    average = Federation(FedAvg(), clients, cohorts, STEPS, client_lrs, noise=1.0)
    assert float((compute_final_params(adam) - compute_final_params(average)).norm()) <= 1e-9
