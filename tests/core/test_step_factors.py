"""Factors of the local steps: a step moves by client_lr · f_k · direction_k, and Σ f_k steps count as taken."""

from typing import Any

import pytest
import torch

import fedcm
from fedcm.algorithms import ALGORITHMS
from fedcm.core.local.step_factors import StepFactors
from fedcm.core.schedule_kinds import Cosine, ExponentialDecay
from fedcm.errors import UserError

SIZES = (3, 9, 4, 8, 14)  # K_i = 1, 3, 1, 2, 4 with batches of 4
USUAL: dict[str, Any] = {"rounds": 4, "batch_size": 4, "lr": 0.2, "seed": 5}
WITHOUT_FACTORS = ("fedmoswa",)


def make_clients() -> list[tuple[torch.Tensor, torch.Tensor]]:
    draw = torch.Generator().manual_seed(1)
    return [
        (torch.randn(size, 3, generator=draw, dtype=torch.float64) + k / 5, torch.arange(size) % 2)
        for k, size in enumerate(SIZES)
    ]


def make_model() -> torch.nn.Module:
    torch.manual_seed(3)
    return torch.nn.Linear(3, 2).double()


def train(algorithm: Any, **settings: Any) -> torch.Tensor:
    model, _ = fedcm.train(make_model(), make_clients(), algorithm, **USUAL | settings)
    return flatten(model)


def flatten(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])


def test_factors_of_1_change_no_bit() -> None:
    for stack in (1, 3):
        plain = train(fedcm.FedCM(0.3), stack=stack)
        assert torch.equal(plain, train(fedcm.FedCM(0.3), stack=stack, step_schedule=fedcm.Constant()))


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name not in (*WITHOUT_FACTORS, "signsgd")])
def test_a_constant_factor_is_a_factor_of_the_rate(name: str) -> None:
    """Movement, mean direction and the server's step agree. signSGD's server takes a step of η_l, whatever K_i is."""
    algorithm = ALGORITHMS[name]()
    usual = {"steps": 3} if name == "vrl-sgd" else {}
    half = train(algorithm, step_schedule=lambda k, count: 0.5, **usual)
    torch.testing.assert_close(half, train(algorithm, lr=0.1, **usual), rtol=0, atol=1e-11)
    assert float((half - train(algorithm, **usual)).abs().max()) > 1e-4


@pytest.mark.parametrize("name", ["fedavg", "fedcm", "scaffold", "fedac", "ghbm", "fedsam", "fedlada", "d-sgd"])
def test_clients_take_the_same_steps_in_a_stack(name: str) -> None:
    algorithm, schedule = ALGORITHMS[name](), fedcm.Polynomial(final=0.2, warmup=2)
    alone, stacked = (train(algorithm, stack=stack, step_schedule=schedule) for stack in (1, 3))
    torch.testing.assert_close(stacked, alone, rtol=0, atol=1e-12)


def test_workers_give_the_same_bits() -> None:
    settings = {"step_schedule": fedcm.Cosine(final=0.1), "lr_schedule": fedcm.Cosine(), "rounds": 3}
    assert torch.equal(train(fedcm.FedCM(0.3), **settings), train(fedcm.FedCM(0.3), workers=2, **settings))


def test_fedcm_divides_by_the_sum_of_the_factors() -> None:
    """The literal FedCM: Δ_i = (x − y_i) / (η·Σ f_k), x ← x − η·mean(Σ f_k)·mean(Δ_i)."""
    x = [torch.tensor([[1.0, 2.0]], dtype=torch.float64), torch.tensor([[0.5, -1.0]] * 3, dtype=torch.float64)]
    y = [torch.tensor([[0.75]], dtype=torch.float64), torch.tensor([[-0.5]] * 3, dtype=torch.float64)]
    model = torch.nn.Linear(2, 1, bias=False).double()
    params, delta, rate, alpha = flatten(model), torch.zeros(2, dtype=torch.float64), 0.1, 0.4
    factors = {1: [1.0], 3: [1.0, 0.5, 0.25]}
    for _ in range(3):
        totals, sums = torch.zeros_like(params), 0.0
        for own_x, own_y in zip(x, y, strict=True):
            local = params.clone()
            for k, factor in enumerate(factors[len(own_x)]):
                gradient = 2 * (own_x[k] @ local - own_y[k]) * own_x[k]
                local = local - rate * factor * (alpha * gradient + (1 - alpha) * delta)
            total = sum(factors[len(own_x)])
            totals, sums = totals + (params - local) / (rate * total), sums + total
        delta = totals / 2
        params = params - rate * sums / 2 * delta
    trained, history = fedcm.train(
        model,
        list(zip(x, y, strict=True)),
        fedcm.FedCM(alpha),
        rounds=3,
        lr=rate,
        batch_size=1,
        step_schedule=fedcm.ExponentialDecay(0.5),
        loss=lambda outputs, labels: (outputs - labels).square().sum(1).mean(),
    )
    torch.testing.assert_close(flatten(trained), params, rtol=0, atol=1e-12)
    assert [line["steps"] for line in history] == [2.0] * 3, "the steps taken"
    assert [line["client_lr"] for line in history] == [rate] * 3


def test_the_factors_of_a_stack_have_a_row_for_each_client() -> None:
    table, sums = StepFactors(ExponentialDecay(0.5)).stack(torch.tensor([[3.0], [1.0]]))
    assert table.tolist() == [[1.0, 0.5, 0.25], [1.0, 1.0, 1.0]]
    assert sums.tolist() == [[1.75], [1.0]]


def test_factors_are_computed_for_every_number_of_steps() -> None:
    factors = StepFactors(Cosine())
    for count in range(1, 200):  # more than are kept
        assert factors.get(count) == tuple(Cosine().compute_factor(k, count) for k in range(count))
        assert factors.sum(count) == pytest.approx(sum(factors.get(count)))


@pytest.mark.parametrize("algorithm", [fedcm.FedMoSWA(), fedcm.FedNova(0.5)], ids=str)
def test_algorithms_that_need_steps_of_equal_length_reject_factors(algorithm: Any) -> None:
    with pytest.raises(UserError, match=r"needs local steps of equal length, so client.step_schedule must be left out"):
        train(algorithm, step_schedule=fedcm.Cosine())


def test_unusable_factors_give_one_sentence_before_the_first_round() -> None:
    with pytest.raises(UserError, match=r"factor above 0 and at most 1e\+06, got -1.0 in local step 2$"):
        train(fedcm.FedAvg(), step_schedule=lambda k, count: 1.0 if k < 2 else -1.0)
    with pytest.raises(UserError, match=r"step_schedule must stay above 1e-12, but it is 2e-14 for a client with 1 "):
        train(fedcm.FedAvg(), step_schedule=lambda k, count: 1e-13)
