"""Diagnoses: the numbers are what they say, and a run with them has the bits of one without."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedcm.algorithm import Round
from fedcm.algorithms.fedavg import FedAvg
from fedcm.algorithms.fedcm import FedCM
from fedcm.algorithms.fedcm import ServerState as Momentum
from fedcm.data.batches import LocalWork
from fedcm.data.dataset import Dataset, Examples
from fedcm.data.federated import ArrayData
from fedcm.diagnosis import Diagnosis, cosine, cost_told, diagnose
from fedcm.executors.client_states import MemoryStates
from fedcm.executors.runner import ClientRunner
from fedcm.experiment import read
from fedcm.problem import Problem, squared_error
from fedcm.running import drive
from fedcm.starting import begin
from fedcm.summary import params_sha256

CLIENTS, EXAMPLES = 6, 8


def runner(algorithm: Any, batch_size: int = 4) -> ClientRunner:
    """Least squares in three dimensions, in float64: f_i(w) = mean (x·w − y)², every gradient known in closed form."""
    draw = np.random.default_rng(3)
    features = torch.from_numpy(draw.standard_normal((CLIENTS * EXAMPLES, 3)).astype(np.float32))
    labels = torch.from_numpy(draw.standard_normal(CLIENTS * EXAMPLES).astype(np.float32))
    parts = np.split(np.arange(CLIENTS * EXAMPLES), CLIENTS)
    data = ArrayData(Dataset("made", Examples(features, labels), None, None), parts)
    problem = Problem(nn.Linear(3, 1, bias=False).double(), squared_error)
    data = data.ready_for(torch.float64, torch.device("cpu"))
    return ClientRunner(algorithm, problem, data, LocalWork(batch_size), seed=1)


def known_gradients(own: ClientRunner, params: torch.Tensor) -> torch.Tensor:
    rows = []
    for client in range(CLIENTS):
        x, y = own.data.client(client)
        rows.append(2 * x.T @ (x @ params - y) / len(y))
    return torch.stack(rows)


def following(index: int = 5, lr: float = 0.05) -> Round:
    return Round(index, lr, 1.0, 0, CLIENTS, math.nan)


def test_gradient_and_dissimilarity_are_those_of_the_closed_form() -> None:
    own, params = runner(FedAvg()), torch.tensor([0.3, -1.0, 2.0], dtype=torch.float64)
    found = diagnose(own, MemoryStates(own.algorithm, params), own.algorithm.init_server(params), following())
    gradients = known_gradients(own, params)
    assert found["gradient_norm"] == pytest.approx(gradients.mean(0).norm().item(), rel=1e-8)
    spread = (gradients - gradients.mean(0)).square().sum(1).mean().item()
    assert found["dissimilarity"] == pytest.approx(spread, rel=1e-8)
    losses = [(x @ params - y).square().mean().item() for x, y in map(own.data.client, range(CLIENTS))]
    assert found["client_loss"] == pytest.approx(np.mean(losses))
    assert found["client_loss_deviation"] == pytest.approx(np.std(losses))
    assert (found["client_loss_least"], found["client_loss_most"]) == pytest.approx((min(losses), max(losses)))


def test_a_sample_of_clients_estimates_the_dissimilarity_without_bias() -> None:
    """Over all draws of 4 of 6 clients its mean is that of all 6, as a sample's variance is a population's."""
    own, params = runner(FedAvg()), torch.zeros(3, dtype=torch.float64)
    server, states = own.algorithm.init_server(params), MemoryStates(own.algorithm, params)
    estimates = [diagnose(own, states, server, following(i), most=4, rehearsed=1)["dissimilarity"] for i in range(400)]
    gradients = known_gradients(own, params)
    population = (gradients - gradients.mean(0)).square().sum(1).sum().item() / (CLIENTS - 1)
    error = np.std(estimates) / math.sqrt(len(estimates))
    assert abs(np.mean(estimates) - population) < 5 * error
    assert error < 0.2 * population


def test_noise_is_that_of_the_minibatches_and_none_in_full_batches() -> None:
    params = torch.ones(3, dtype=torch.float64)
    whole = runner(FedAvg(), batch_size=EXAMPLES)
    server, states = whole.algorithm.init_server(params), MemoryStates(whole.algorithm, params)
    assert diagnose(whole, states, server, following())["noise"] == pytest.approx(0, abs=1e-20)
    small = runner(FedAvg(), batch_size=4)
    expected = []
    for client in range(CLIENTS):
        x, y = small.data.client(client)
        own = 2 * x.T @ (x @ params - y) / len(y)
        for batch in small.local_work.batches(Examples(x, y), 1, 5, client):
            part = 2 * batch.features.T @ (batch.features @ params - batch.labels) / batch.size
            expected.append((part - own).square().sum().item())
    assert diagnose(small, states, server, following())["noise"] == pytest.approx(np.mean(expected), rel=1e-8)


def test_drift_and_directions_are_those_of_the_local_steps() -> None:
    own, params = runner(FedCM(alpha=0.3), batch_size=4), torch.ones(3, dtype=torch.float64)
    momentum = torch.tensor([0.5, 0.1, -0.2], dtype=torch.float64)
    found = diagnose(own, MemoryStates(own.algorithm, params), Momentum(params, momentum), following(lr=0.05))
    drifts, cosines, gradient = [], [], known_gradients(own, params).mean(0)
    for client in range(CLIENTS):
        y, squares = params.clone(), []
        for batch in own.local_work.batches(own.data.client(client), 1, 5, client):
            g = 2 * batch.features.T @ (batch.features @ y - batch.labels) / batch.size
            y = y - 0.05 * (0.3 * g + 0.7 * momentum)
            squares.append((y - params).square().sum().item())
        drifts.append(np.mean(squares))
        cosines.append(cosine(params - y, gradient))
    assert found["drift"] == pytest.approx(np.mean(drifts), rel=1e-8)
    assert found["direction_cosine"] == pytest.approx(np.mean(cosines), rel=1e-8)
    assert found["direction_cosine_least"] == pytest.approx(min(cosines), rel=1e-8)
    assert found["momentum_cosine"] == pytest.approx(cosine(momentum, gradient), rel=1e-8)


def experiment(algorithm: str) -> Any:
    return read(
        {
            "name": "watched",
            "rounds": 6,
            "seed": 2,
            "split": {"kind": "dirichlet", "clients": 20, "concentration": 0.6},
            "participation": {"kind": "fixed", "clients": 5},
            "model": {"name": "mlp", "hidden": [8]},
            "algorithm": {"name": algorithm},
            "engine": {"stack": 1, "layout": "channels_last", "compile": "off"},
        }
    )


@pytest.mark.parametrize("algorithm", ["fedcm", "scaffold", "feddyn", "fedadam", "fedavg"])
def test_a_run_with_diagnoses_has_the_bits_of_one_without(algorithm: str, tmp_path: Path) -> None:
    shas = []
    for name, diagnosis in (("plain", None), ("watched", Diagnosis(2))):
        run = begin(experiment(algorithm), tmp_path, name)
        run.diagnosis = diagnosis
        for _ in drive(run):
            pass
        shas.append(params_sha256(run.server.params))
    assert shas[0] == shas[1]
    lines = [json.loads(line) for line in (tmp_path / "watched" / "metrics.jsonl").read_text().splitlines()]
    assert ["diagnosis" in line for line in lines] == [False, True] * 3
    assert all(math.isfinite(value) for line in lines for value in line.get("diagnosis", {}).values())


def test_the_cost_is_told_once_and_at_the_end_and_never_when_off() -> None:
    said: list[str] = []
    rounds = [
        {"seconds": 2.0},
        {"seconds": 2.0, "diagnosis": {"seconds": 1.0}},
        {"seconds": 4.0, "diagnosis": {"seconds": 1.0}},
    ]
    assert list(cost_told(iter(rounds), said.append)) == rounds
    assert said == [
        "a diagnosis takes 1 s, and 25% of the rounds' time at this pace",
        "2 diagnoses took 2 s, 25.0% of the rounds' 8 s",
    ]
    said.clear()
    list(cost_told(iter([{"seconds": 1.0}]), said.append))
    assert not said
