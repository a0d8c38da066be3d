"""The whole simulator on heterogeneous least-squares clients, whose optimum is known in closed form."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedcm.algorithms import (
    GHBM,
    MFL,
    VRLSGD,
    FedACG,
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedCM,
    FedCMAnytime,
    FedDANE,
    FedDyn,
    FedMoSWA,
    FedNova,
    FedPD,
    FedProx,
    FedSplit,
    FedYogi,
    Mime,
    MimeLite,
    Scaffold,
    SlowMo,
)
from fedcm.core.algorithm import Algorithm
from fedcm.core.losses import squared_error
from fedcm.core.participation import Everyone, FixedSize, Participation
from fedcm.core.problem import Problem
from fedcm.core.round_loop import TrainingPlan, run_rounds
from fedcm.core.schedule import Schedule
from fedcm.data.batches import LocalWork
from fedcm.data.dataset import Dataset, Examples
from fedcm.data.federated import ArrayData
from fedcm.executors.client_runner import ClientRunner
from fedcm.executors.local import LocalExecutor

CLIENTS, EACH, SIZE = 4, 12, 3
DRAW = torch.Generator().manual_seed(3)
X = (
    torch.randn(CLIENTS, EACH, SIZE, generator=DRAW, dtype=torch.float64)
    * torch.linspace(0.5, 1.5, CLIENTS)[:, None, None]
)
Y = (X @ torch.randn(CLIENTS, SIZE, 1, generator=DRAW, dtype=torch.float64))[..., 0]
OPTIMUM = torch.linalg.lstsq(X.reshape(-1, SIZE), Y.reshape(-1, 1)).solution[:, 0]


def compute_distance(
    algorithm: Algorithm[Any, Any, Any, Any],
    participation: Participation,
    rounds: int,
    steps: int = 5,
    server_lr: float = 1.0,
    stack: int = 1,
) -> float:
    """Return the final distance from the optimum; batches are full, so only client drift can cause one."""
    dataset = Dataset("made", Examples(X.reshape(-1, SIZE), Y.reshape(-1)), None, None)
    data = ArrayData(dataset, np.split(np.arange(CLIENTS * EACH), CLIENTS), torch.float64)
    problem = Problem(nn.Linear(SIZE, 1, bias=False).double(), squared_error)
    executor = LocalExecutor(ClientRunner(algorithm, problem, data, LocalWork(EACH, steps=steps), seed=0, stack=stack))
    plan = TrainingPlan(rounds, CLIENTS, participation, Schedule(0.1, server_lr=server_lr), seed=0)
    *_, last = run_rounds(algorithm, executor, plan, algorithm.init_server(problem.initial_params))
    return float((last.server.params - OPTIMUM).abs().max())


@pytest.mark.slow
@pytest.mark.parametrize("participation", [Everyone(), FixedSize(2)], ids=str)
@pytest.mark.parametrize(
    "algorithm",
    [Scaffold("I"), Scaffold("II"), FedDyn(alpha=0.5), FedPD(2.0)],
    ids=str,
)
def test_the_simulator_reaches_the_exact_optimum(
    algorithm: Algorithm[Any, Any, Any, Any], participation: Participation
) -> None:
    assert compute_distance(algorithm, participation, rounds=400) < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", [VRLSGD(), Mime(0.5), FedDANE(0.1), FedMoSWA(0.5, 1.0, 0.5)], ids=str)
def test_with_everyone_it_reaches_the_exact_optimum(algorithm: Algorithm[Any, Any, Any, Any]) -> None:
    assert compute_distance(algorithm, Everyone(), rounds=400, stack=CLIENTS) < 1e-9


def test_fedsplit_reaches_the_optimum_as_far_as_its_local_problems_are_solved() -> None:
    few, many = (
        compute_distance(FedSplit(1.0), Everyone(), rounds=60, steps=steps, stack=CLIENTS) for steps in (5, 60)
    )
    assert many < 1e-2 * few


@pytest.mark.parametrize(
    "algorithm",
    [
        FedAvg(),
        FedProx(0.1),
        FedNova(),
        FedAvgM(0.5),
        SlowMo(0.5),
        FedACG(0.5, 0.001),
        FedCM(0.3),
        FedCMAnytime(0.3, 8.0),
        MimeLite(0.5),
        MFL(0.5),
        GHBM(0.5, 2),
    ],
    ids=str,
)
def test_methods_without_a_correction_do_not_reach_the_optimum(algorithm: Algorithm[Any, Any, Any, Any]) -> None:
    assert compute_distance(algorithm, Everyone(), rounds=100, stack=CLIENTS) > 1e-3


@pytest.mark.parametrize("algorithm", [FedAdam(tau=0.1), FedYogi(tau=0.1), FedAdagrad(tau=0.1)], ids=str)
def test_adaptive_servers_do_not_reach_the_optimum(algorithm: Algorithm[Any, Any, Any, Any]) -> None:
    assert compute_distance(algorithm, Everyone(), rounds=100, server_lr=0.05, stack=CLIENTS) > 1e-3
