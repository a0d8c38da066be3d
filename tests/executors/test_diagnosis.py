"""Diagnoses measure the right quantities and do not change the bits of a run."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scenes import finish_session
from torch import nn
from torch.nn.functional import cosine_similarity

from fedcm.algorithms.averaging.fedavg import FedAvg
from fedcm.algorithms.client_momentum.fedcm import FedCM
from fedcm.algorithms.client_momentum.fedcm import ServerState as Momentum
from fedcm.config.experiment import read_experiment
from fedcm.core.algorithm import Round
from fedcm.core.losses import squared_error
from fedcm.core.problem import Problem
from fedcm.data.batches import LocalWork
from fedcm.data.dataset import Dataset, Examples
from fedcm.data.federated import ArrayData
from fedcm.errors import Stopped
from fedcm.executors.client_runner import ClientRunner
from fedcm.executors.client_states import ClientStatesInMemory
from fedcm.executors.diagnosis import diagnose
from fedcm.runs.session import Session, SessionOptions
from fedcm.runs.summary import hash_params

CLIENTS, EXAMPLES = 6, 8


def make_runner(algorithm: Any, batch_size: int = 4) -> ClientRunner:
    """Least squares in three dimensions, in float64: f_i(w) = mean (x·w − y)², every gradient known in closed form."""
    draw = np.random.default_rng(3)
    features = torch.from_numpy(draw.standard_normal((CLIENTS * EXAMPLES, 3)).astype(np.float32))
    labels = torch.from_numpy(draw.standard_normal(CLIENTS * EXAMPLES).astype(np.float32))
    parts = np.split(np.arange(CLIENTS * EXAMPLES), CLIENTS)
    data = ArrayData(Dataset("made", Examples(features, labels), None, None), parts)
    problem = Problem(nn.Linear(3, 1, bias=False).double(), squared_error)
    data = data.prepare_for(torch.float64, torch.device("cpu"))
    return ClientRunner(algorithm, problem, data, LocalWork(batch_size), seed=1)


def compute_known_gradients(own: ClientRunner, params: torch.Tensor) -> torch.Tensor:
    rows = []
    for client in range(CLIENTS):
        x, y = own.data.client(client)
        rows.append(2 * x.T @ (x @ params - y) / len(y))
    return torch.stack(rows)


def make_round(index: int = 5, lr: float = 0.05) -> Round:
    return Round(index, lr, 1.0, 0, CLIENTS, math.nan)


def test_gradient_and_dissimilarity_match_the_closed_form() -> None:
    own, params = make_runner(FedAvg()), torch.tensor([0.3, -1.0, 2.0], dtype=torch.float64)
    diagnosed = diagnose(
        own, ClientStatesInMemory(own.algorithm.init_client(params)), own.algorithm.init_server(params), make_round()
    )
    gradients = compute_known_gradients(own, params)
    assert diagnosed["gradient_norm"] == pytest.approx(gradients.mean(0).norm().item(), rel=1e-8)
    assert diagnosed["gradient_square"] == pytest.approx(gradients.mean(0).square().sum().item(), rel=1e-8)
    spread = (gradients - gradients.mean(0)).square().sum(1).mean().item()
    assert diagnosed["dissimilarity"] == pytest.approx(spread, rel=1e-8)
    losses = [(x @ params - y).square().mean().item() for x, y in map(own.data.client, range(CLIENTS))]
    assert diagnosed["client_loss"] == pytest.approx(np.mean(losses))
    assert diagnosed["client_loss_deviation"] == pytest.approx(np.std(losses))
    assert (diagnosed["client_loss_least"], diagnosed["client_loss_most"]) == pytest.approx((min(losses), max(losses)))


def test_noise_is_that_of_the_minibatches_and_zero_for_full_batches() -> None:
    params = torch.ones(3, dtype=torch.float64)
    whole = make_runner(FedAvg(), batch_size=EXAMPLES)
    server, states = whole.algorithm.init_server(params), ClientStatesInMemory(whole.algorithm.init_client(params))
    assert diagnose(whole, states, server, make_round())["noise"] == pytest.approx(0, abs=1e-20)
    small = make_runner(FedAvg(), batch_size=4)
    expected = []
    for client in range(CLIENTS):
        x, y = small.data.client(client)
        own = 2 * x.T @ (x @ params - y) / len(y)
        for batch in small.local_work.draw_batches(Examples(x, y), 1, 5, client):
            part = 2 * batch.features.T @ (batch.features @ params - batch.labels) / batch.size
            expected.append((part - own).square().sum().item())
    assert diagnose(small, states, server, make_round())["noise"] == pytest.approx(np.mean(expected), rel=1e-8)


def test_drift_and_directions_are_those_of_the_local_steps() -> None:
    own, params = make_runner(FedCM(alpha=0.3), batch_size=4), torch.ones(3, dtype=torch.float64)
    momentum = torch.tensor([0.5, 0.1, -0.2], dtype=torch.float64)
    diagnosed = diagnose(
        own, ClientStatesInMemory(own.algorithm.init_client(params)), Momentum(params, momentum), make_round(lr=0.05)
    )
    drifts, cosines, gradient = [], [], compute_known_gradients(own, params).mean(0)
    for client in range(CLIENTS):
        y, squares = params.clone(), []
        for batch in own.local_work.draw_batches(own.data.client(client), 1, 5, client):
            g = 2 * batch.features.T @ (batch.features @ y - batch.labels) / batch.size
            squares.append((y - params).square().sum().item())
            y = y - 0.05 * (0.3 * g + 0.7 * momentum)
        drifts.append(np.mean(squares))
        cosines.append(cosine_similarity(params - y, gradient, dim=0).item())
    assert diagnosed["drift"] == pytest.approx(np.mean(drifts), rel=1e-8)
    assert diagnosed["direction_cosine"] == pytest.approx(np.mean(cosines), rel=1e-8)
    assert diagnosed["direction_cosine_least"] == pytest.approx(min(cosines), rel=1e-8)
    assert diagnosed["momentum_cosine"] == pytest.approx(cosine_similarity(momentum, gradient, dim=0).item(), rel=1e-8)
    assert diagnosed["momentum_norm"] == pytest.approx(momentum.norm().item(), rel=1e-8)


def make_experiment(algorithm: str) -> Any:
    return read_experiment(
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


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("algorithm", ["fedcm", "scaffold", "feddyn", "fedadam", "fedavg"])
def test_diagnoses_do_not_change_the_bits_of_a_run(algorithm: str, tmp_path: Path) -> None:
    shas = []
    for name, every in (("plain", None), ("watched", 2)):
        run = Session.start(make_experiment(algorithm), tmp_path, name)
        finish_session(run, diagnose_every=every)
        shas.append(hash_params(run.server.params))
    assert shas[0] == shas[1]
    lines = read_metrics(tmp_path / "watched")
    assert ["diagnosis" in line for line in lines] == [False, True] * 3
    assert all(math.isfinite(value) for line in lines for value in line.get("diagnosis", {}).values())


def test_a_diagnosis_uses_the_current_state_and_the_next_round(tmp_path: Path) -> None:
    run = Session.start(make_experiment("fedcm"), tmp_path, "watched")
    finish_session(run, diagnose_every=6)
    schedule, population = run.setup.plan.schedule, run.setup.plan.population
    next_round = Round(6, schedule.client_lr_at(6), schedule.server_lr, 0, population, math.nan)
    expected = diagnose(run.setup.runner, run.states, run.server, next_round)
    diagnosed = read_metrics(tmp_path / "watched")[-1]["diagnosis"]
    assert {k: v for k, v in diagnosed.items() if k != "seconds"} == {
        k: v for k, v in expected.items() if k != "seconds"
    }


def test_values_that_are_not_finite_are_recorded_as_none_and_the_run_continues(tmp_path: Path) -> None:
    own, params = make_runner(FedAvg(), batch_size=1), torch.ones(3, dtype=torch.float64)
    states, server = ClientStatesInMemory(own.algorithm.init_client(params)), own.algorithm.init_server(params)
    diagnosed = diagnose(own, states, server, make_round(lr=1e200))
    assert diagnosed["drift"] is None
    assert diagnosed["direction_cosine"] is None
    assert diagnosed["direction_cosine_least"] is None
    assert math.isfinite(diagnosed["gradient_norm"] or math.nan)
    json.dumps(diagnosed, allow_nan=False)


def test_the_diagnosis_of_a_random_model_is_reproducible() -> None:
    plain = make_runner(FedAvg())
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(3, 1, bias=False)).double()
    own = ClientRunner(FedAvg(), Problem(model, squared_error), plain.data, LocalWork(4), seed=1)
    params = torch.ones(3, dtype=torch.float64)
    diagnosed = []
    for before in (1, 2):
        torch.manual_seed(before)
        told = diagnose(
            own, ClientStatesInMemory(FedAvg().init_client(params)), own.algorithm.init_server(params), make_round()
        )
        diagnosed.append({name: value for name, value in told.items() if name != "seconds"})
    assert diagnosed[0] == diagnosed[1]


def test_fields_that_are_no_directions_have_no_cosine(tmp_path: Path) -> None:
    run = Session.start(make_experiment("fedadam"), tmp_path, "adam")
    finish_session(run, diagnose_every=3)
    diagnosed = read_metrics(tmp_path / "adam")[2]["diagnosis"]
    assert "momentum_cosine" in diagnosed
    assert not any(name.startswith("second_moment") for name in diagnosed)


def test_a_stop_request_ends_the_diagnosis_but_not_the_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is stopped and resumed ends with the same bits, also for SCAFFOLD's client states."""
    whole = Session.start(make_experiment("scaffold"), tmp_path, "whole")
    finish_session(whole)
    asked: list[bool] = []

    def stopped_in_the_middle(*given: Any, **named: Any) -> Any:
        asked.append(True)
        return diagnose(*given, **named)

    monkeypatch.setattr("fedcm.runs.session.diagnose", stopped_in_the_middle)
    run = Session.start(
        make_experiment("scaffold"), tmp_path, "stopped", options=SessionOptions(stop_requested=lambda: bool(asked))
    )
    with pytest.raises(Stopped):
        finish_session(run, diagnose_every=2)
    assert ["diagnosis" in line for line in read_metrics(tmp_path / "stopped")] == [False, False]
    resumed = Session.resume(tmp_path / "stopped")
    finish_session(resumed)
    assert hash_params(resumed.server.params) == hash_params(whole.server.params)
