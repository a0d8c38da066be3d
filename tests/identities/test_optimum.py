"""The whole simulator on heterogeneous least-squares clients, whose optimum is known in closed form."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedcm.algorithms import FedAvg, FedDyn, Scaffold
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


def compute_distance(algorithm: Algorithm[Any, Any, Any, Any], participation: Participation, rounds: int) -> float:
    """Return the final distance from the optimum; batches are full, so only client drift can cause one."""
    dataset = Dataset("made", Examples(X.reshape(-1, SIZE), Y.reshape(-1)), None, None)
    data = ArrayData(dataset, np.split(np.arange(CLIENTS * EACH), CLIENTS), torch.float64)
    problem = Problem(nn.Linear(SIZE, 1, bias=False).double(), squared_error)
    executor = LocalExecutor(ClientRunner(algorithm, problem, data, LocalWork(EACH, steps=5), seed=0))
    plan = TrainingPlan(rounds, CLIENTS, participation, Schedule(0.1), seed=0)
    *_, last = run_rounds(algorithm, executor, plan, algorithm.init_server(problem.initial_params))
    return float((last.server.params - OPTIMUM).abs().max())


@pytest.mark.parametrize("participation", [Everyone(), FixedSize(2)], ids=str)
@pytest.mark.parametrize("algorithm", [Scaffold("I"), Scaffold("II"), FedDyn(alpha=0.5)], ids=str)
def test_the_simulator_reaches_the_exact_optimum(
    algorithm: Algorithm[Any, Any, Any, Any], participation: Participation
) -> None:
    assert compute_distance(algorithm, participation, rounds=400) < 1e-9


def test_fedavg_does_not_reach_the_optimum() -> None:
    assert compute_distance(FedAvg(), Everyone(), rounds=400) > 1e-2
