"""The papers' identities at the smallest rates in use, in float32, through the real local steps.

At η_l = 3.3·10⁻⁵, the last of the FedCM paper's decaying rates, a step is near the rounding unit of a parameter. A
direction that is read off the parameters, (x − y) / (η_l·K), is then mostly rounding. The reference here is the float64
mean of the very gradients that the local steps were given.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedcm.algorithms import FedAdam, FedAvg, FedCM, FedDyn, Scaffold
from fedcm.core import problem as problem_module
from fedcm.core.algorithm import Algorithm
from fedcm.core.local import stacked as stacked_module
from fedcm.core.participation import Everyone
from fedcm.core.problem import Problem
from fedcm.core.round_loop import TrainingPlan, run_rounds
from fedcm.core.schedule import Schedule
from fedcm.data.batches import LocalWork
from fedcm.data.dataset import Dataset, Examples
from fedcm.data.federated import ArrayData
from fedcm.executors.client_runner import ClientRunner
from fedcm.executors.local import LocalExecutor
from fedcm.models import build_model

CLIENTS, EACH, BATCH, EPOCHS, ROUNDS = 4, 24, 8, 2, 5
STEPS = EPOCHS * EACH // BATCH
ALPHA = 0.1
RATES = [0.1, 3.3e-5, 1e-7]
CLOSE = 2e-6  # relative to a vector's norm: a few rounding units of float32


@pytest.fixture
def gradients(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The minibatch gradients of all local steps since the list was cleared; one row per client."""
    recorded: list[Tensor] = []
    for kind in (problem_module.BatchGradient, stacked_module._StackedBatchGradient):
        monkeypatch.setattr(kind, "__call__", record_gradients(kind.__call__, recorded))
    return recorded


def record_gradients(call: Any, recorded: list[Tensor]) -> Any:
    def gradient(batch: Any, params: Tensor) -> Tensor:
        found = call(batch, params)
        recorded.append(found.double().reshape(-1, found.shape[-1]))
        return found

    return gradient


def mean_gradients(gradients: list[Tensor]) -> Tensor:
    """(clients, P): the mean of each client over its steps, for single clients and stacks."""
    return torch.cat([torch.stack(gradients[k : k + STEPS]).mean(0) for k in range(0, len(gradients), STEPS)])


def run_float32(
    algorithm: Algorithm[Any, Any, Any, Any], client_lr: float, stack: int, gradients: list[Tensor]
) -> Iterator[tuple[Any, Any, LocalExecutor]]:
    """A real run in float32: (server state before, after, executor) for each round."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(CLIENTS * EACH, 3, 16, 16, generator=draw)
    y = torch.randint(10, (CLIENTS * EACH,), generator=draw)
    data = ArrayData(Dataset("made", Examples(x, y), None, 10), np.split(np.arange(CLIENTS * EACH), CLIENTS))
    problem = Problem(build_model("lenet", (3, 16, 16), 10, {}, 0))
    runner = ClientRunner(algorithm, problem, data, LocalWork(BATCH, EPOCHS), seed=1, stack=stack)
    executor = LocalExecutor(runner)
    before = algorithm.init_server(problem.initial_params)
    plan = TrainingPlan(ROUNDS, CLIENTS, Everyone(), Schedule(client_lr), seed=1)
    for done in run_rounds(algorithm, executor, plan, before):
        yield before, done.server, executor
        before = done.server
        gradients.clear()


def compute_distance(actual: Tensor, expected: Tensor) -> float:
    """Return the distance relative to the norm of the expected vector."""
    return ((actual.double() - expected).norm() / expected.norm()).item()


@pytest.mark.parametrize("stack", [1, 4])
@pytest.mark.parametrize("client_lr", RATES)
def test_lemma_1_holds_to_rounding_at_every_rate(client_lr: float, stack: int, gradients: list[Tensor]) -> None:
    """Δ_{t+1} = α·(mean minibatch gradient of the round) + (1−α)·Δ_t."""
    for before, after, _ in run_float32(FedCM(ALPHA), client_lr, stack, gradients):
        expected = ALPHA * mean_gradients(gradients).mean(0) + (1 - ALPHA) * before.momentum.double()
        assert compute_distance(after.momentum, expected) < CLOSE
        nowhere = (after.momentum == 0) & (expected.abs() > CLOSE * expected.abs().max())
        assert not nowhere.any(), "an entry of Δ was lost"


@pytest.mark.parametrize("stack", [1, 4])
@pytest.mark.parametrize("client_lr", RATES)
def test_scaffolds_controls_are_the_clients_mean_gradients(
    client_lr: float, stack: int, gradients: list[Tensor]
) -> None:
    """Option II: c_i⁺ = c_i − c + mean direction = the mean minibatch gradient; c is the mean of the c_i."""
    for _, after, executor in run_float32(Scaffold("II"), client_lr, stack, gradients):
        expected = mean_gradients(gradients)
        for client in range(CLIENTS):
            assert compute_distance(executor.states.get(client).control, expected[client]) < CLOSE
        assert compute_distance(after.control, expected.mean(0)) < 10 * CLOSE  # a sum of changes, round after round


@pytest.mark.parametrize("stack", [1, 4])
@pytest.mark.parametrize("client_lr", RATES)
def test_movements_are_the_sum_of_the_steps_at_every_rate(
    client_lr: float, stack: int, gradients: list[Tensor]
) -> None:
    """FedDyn with full participation: after a round h = a·Σ mean movements; the movement is η_l·K·(mean direction)."""
    alpha, total = 0.01, torch.zeros(())
    for before, after, executor in run_float32(FedDyn(alpha), client_lr, stack, gradients):
        corrections = torch.stack([executor.states.get(client).correction for client in range(CLIENTS)]).double()
        assert compute_distance(after.correction, corrections.mean(0)) < 10 * CLOSE
        if not before.correction.any():  # in the first round a direction is the gradient plus a·(y − x)
            total = alpha * client_lr * STEPS * mean_gradients(gradients).mean(0)
            assert compute_distance(after.correction, total) < 2 * alpha * client_lr * STEPS + CLOSE
    assert total.any()


@pytest.mark.parametrize("algorithm", [FedAvg(), FedAdam()], ids=str)
@pytest.mark.parametrize("client_lr", RATES)
def test_the_server_receives_movements_below_the_rounding_of_parameters(
    algorithm: Algorithm[Any, Any, Any, Any], client_lr: float, gradients: list[Tensor]
) -> None:
    """FedAdam's first momentum is (1−β1)·mean movement; FedAvg's step ends within half a rounding unit of the truth."""
    before, after, _ = next(run_float32(algorithm, client_lr, 1, gradients))
    moved = client_lr * STEPS * mean_gradients(gradients).mean(0)
    if isinstance(algorithm, FedAdam):
        assert compute_distance(after.momentum, (1 - algorithm.beta1) * moved) < 10 * CLOSE
    else:
        truth = before.params.double() - moved
        unit = torch.finfo(torch.float32).eps * truth.abs().clamp(min=1e-30)
        assert ((after.params.double() - truth).abs() <= 0.51 * unit + CLOSE * moved.norm()).all()


def test_steps_below_the_rounding_of_parameters_add_up() -> None:
    """Each of 1000 steps is a tenth of the unit: the client must move by 100 units, not by 0."""
    from fedcm.core.local.steps import run_local_steps

    problem = Problem(torch.nn.Linear(1, 1, bias=False), lambda outputs, labels: outputs.mean())
    sent = FedAvg().broadcast(FedAvg().init_server(torch.tensor([1.0])))
    one = Examples(torch.ones(1, 1), torch.zeros(1))
    unit = 2.0**-24  # below 1.0
    result = run_local_steps(
        FedAvg(), problem, sent, (), data=one, batches=[one] * 1000, count=1000, client_lr=0.1 * unit, step_decay=0.0
    )
    assert result.report[0].item() == pytest.approx(100 * unit, rel=1e-4)
