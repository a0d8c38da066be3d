"""Diagnoses: the numbers are what they say, and a run with them has the bits of one without."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cosine_similarity

from fedcm.algorithms.fedavg import FedAvg
from fedcm.algorithms.fedcm import FedCM
from fedcm.algorithms.fedcm import ServerState as Momentum
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
from fedcm.executors.diagnosis import Diagnosis, diagnose, report_cost
from fedcm.runs.running import drive
from fedcm.runs.starting import begin, resume
from fedcm.runs.summary import params_sha256

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
    found = diagnose(own, ClientStatesInMemory(own.algorithm, params), own.algorithm.init_server(params), following())
    gradients = known_gradients(own, params)
    assert found["gradient_norm"] == pytest.approx(gradients.mean(0).norm().item(), rel=1e-8)
    assert found["gradient_square"] == pytest.approx(gradients.mean(0).square().sum().item(), rel=1e-8)
    spread = (gradients - gradients.mean(0)).square().sum(1).mean().item()
    assert found["dissimilarity"] == pytest.approx(spread, rel=1e-8)
    losses = [(x @ params - y).square().mean().item() for x, y in map(own.data.client, range(CLIENTS))]
    assert found["client_loss"] == pytest.approx(np.mean(losses))
    assert found["client_loss_deviation"] == pytest.approx(np.std(losses))
    assert (found["client_loss_least"], found["client_loss_most"]) == pytest.approx((min(losses), max(losses)))


def test_noise_is_that_of_the_minibatches_and_none_in_full_batches() -> None:
    params = torch.ones(3, dtype=torch.float64)
    whole = runner(FedAvg(), batch_size=EXAMPLES)
    server, states = whole.algorithm.init_server(params), ClientStatesInMemory(whole.algorithm, params)
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
    found = diagnose(own, ClientStatesInMemory(own.algorithm, params), Momentum(params, momentum), following(lr=0.05))
    drifts, cosines, gradient = [], [], known_gradients(own, params).mean(0)
    for client in range(CLIENTS):
        y, squares = params.clone(), []
        for batch in own.local_work.batches(own.data.client(client), 1, 5, client):
            g = 2 * batch.features.T @ (batch.features @ y - batch.labels) / batch.size
            squares.append((y - params).square().sum().item())
            y = y - 0.05 * (0.3 * g + 0.7 * momentum)
        drifts.append(np.mean(squares))
        cosines.append(cosine_similarity(params - y, gradient, dim=0).item())
    assert found["drift"] == pytest.approx(np.mean(drifts), rel=1e-8)
    assert found["direction_cosine"] == pytest.approx(np.mean(cosines), rel=1e-8)
    assert found["direction_cosine_least"] == pytest.approx(min(cosines), rel=1e-8)
    assert found["momentum_cosine"] == pytest.approx(cosine_similarity(momentum, gradient, dim=0).item(), rel=1e-8)
    assert found["momentum_norm"] == pytest.approx(momentum.norm().item(), rel=1e-8)


def experiment(algorithm: str) -> Any:
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


def metrics_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


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
    lines = metrics_of(tmp_path / "watched")
    assert ["diagnosis" in line for line in lines] == [False, True] * 3
    assert all(math.isfinite(value) for line in lines for value in line.get("diagnosis", {}).values())


def test_the_cost_is_told_once_and_at_the_end_and_never_when_off() -> None:
    said: list[str] = []
    rounds = [
        {"seconds": 2.0},
        {"seconds": 2.0, "diagnosis": {"seconds": 1.0}},
        {"seconds": 4.0, "diagnosis": {"seconds": 1.0}},
    ]
    assert list(report_cost(iter(rounds), 2, said.append)) == rounds
    assert said == [
        "a diagnosis takes 1 s; at this pace they take 25% of the rounds' time",
        "2 diagnoses took 2 s, 25% of the rounds' 8 s",
    ]
    said.clear()
    resumed = [{"seconds": 1.0, "diagnosis": {"seconds": 4.0}}]
    list(report_cost(iter(resumed), 8, said.append))
    assert said[0] == "a diagnosis takes 4 s; at this pace they take 50% of the rounds' time", (
        "after one round of eight"
    )
    assert said[1] == "1 diagnosis took 4 s, 4 times the rounds' 1 s"
    said.clear()
    list(report_cost(iter([{"seconds": 1.0}]), 2, said.append))
    assert not said


def test_a_diagnosis_is_that_of_the_next_round_at_the_state_reached(tmp_path: Path) -> None:
    run = begin(experiment("fedcm"), tmp_path, "watched")
    run.diagnosis = Diagnosis(6)
    for _ in drive(run):
        pass
    schedule, population = run.assembly.plan.schedule, run.assembly.plan.population
    following = Round(6, schedule.client(6), schedule.server_lr, 0, population, math.nan)
    expected = diagnose(run.assembly.runner, run.states, run.server, following)
    found = metrics_of(tmp_path / "watched")[-1]["diagnosis"]
    assert {k: v for k, v in found.items() if k != "seconds"} == {k: v for k, v in expected.items() if k != "seconds"}


def test_steps_that_explode_in_a_rehearsal_are_told_as_none_and_the_run_goes_on(tmp_path: Path) -> None:
    own, params = runner(FedAvg(), batch_size=1), torch.ones(3, dtype=torch.float64)
    states, server = ClientStatesInMemory(own.algorithm, params), own.algorithm.init_server(params)
    found = diagnose(own, states, server, following(lr=1e200))
    assert found["drift"] is None
    assert found["direction_cosine"] is None
    assert found["direction_cosine_least"] is None
    assert math.isfinite(found["gradient_norm"] or math.nan)
    json.dumps(found, allow_nan=False)


def test_a_model_that_takes_chances_is_diagnosed_the_same_whatever_went_before() -> None:
    plain = runner(FedAvg())
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(3, 1, bias=False)).double()
    own = ClientRunner(FedAvg(), Problem(model, squared_error), plain.data, LocalWork(4), seed=1)
    params = torch.ones(3, dtype=torch.float64)
    found = []
    for before in (1, 2):
        torch.manual_seed(before)
        told = diagnose(own, ClientStatesInMemory(FedAvg(), params), own.algorithm.init_server(params), following())
        found.append({name: value for name, value in told.items() if name != "seconds"})
    assert found[0] == found[1]


def test_what_is_no_direction_has_no_cosine(tmp_path: Path) -> None:
    run = begin(experiment("fedadam"), tmp_path, "adam")
    run.diagnosis = Diagnosis(3)
    for _ in drive(run):
        pass
    found = metrics_of(tmp_path / "adam")[2]["diagnosis"]
    assert "momentum_cosine" in found
    assert not any(name.startswith("second_moment") for name in found)


def test_a_wish_to_stop_ends_a_diagnosis_and_not_the_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was stopped and resumed ends with the bits of what was not, SCAFFOLD's clients too."""
    whole = begin(experiment("scaffold"), tmp_path, "whole")
    for _ in drive(whole):
        pass
    asked: list[bool] = []

    def stopped_in_the_middle(*given: Any, **named: Any) -> Any:
        asked.append(True)
        return diagnose(*given, **named)

    monkeypatch.setattr("fedcm.runs.running.diagnose", stopped_in_the_middle)
    run = begin(experiment("scaffold"), tmp_path, "stopped", stop_requested=lambda: bool(asked))
    run.diagnosis = Diagnosis(2)
    with pytest.raises(Stopped):
        for _ in drive(run):
            pass
    assert ["diagnosis" in line for line in metrics_of(tmp_path / "stopped")] == [False, False]
    resumed = resume(tmp_path / "stopped")
    for _ in drive(resumed):
        pass
    assert params_sha256(resumed.server.params) == params_sha256(whole.server.params)
