"""The probe and `fedcm advise`: trials are short runs of FedCM on the same data, and can be stopped."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scenes import Answer
from torch import nn

from fedcm.advice.probe import count_affordable_rounds, measure_smoothness, probe
from fedcm.advice.suggestion import ALPHAS, Trial, find_best_trial, scale_alpha
from fedcm.algorithms.client_momentum.fedcm import FedCM
from fedcm.config.experiment import load_experiment_file
from fedcm.core.algorithm import Round
from fedcm.core.losses import squared_error
from fedcm.core.participation import Independent
from fedcm.core.problem import Problem
from fedcm.data.batches import LocalWork
from fedcm.data.dataset import Dataset, Examples
from fedcm.data.federated import ArrayData
from fedcm.errors import Stopped
from fedcm.executors.client_runner import ClientRunner
from fedcm.runs.build import TrainingSetup, build

DIAGNOSIS = {
    "gradient_square": 1.0,
    "noise": 20.0,
    "round_noise": 0.2,
    "dissimilarity": 5.0,
    "direction_cosine": 0.3,
    "momentum_cosine": 0.6,
}


def write_experiment(tmp_path: Path) -> Path:
    file = tmp_path / "own.toml"
    file.write_text(
        'name = "own"\nrounds = 50\n[split]\nkind = "iid"\nclients = 10\n[participation]\nkind = "fixed"\nclients = 5\n'
        '[model]\nname = "mlp"\nhidden = [8]\n[algorithm]\nname = "fedcm"\n'
    )
    return file


def test_the_command_prints_advice_and_writes_nothing(fedcm: Callable[..., Answer], tmp_path: Path) -> None:
    file = write_experiment(tmp_path)
    answer = fedcm("advise", file, "--rounds", 4, "--json")
    assert answer.code == 0, answer.err
    suggested = json.loads(answer.out)
    assert suggested["probe"]["rounds"] == 4
    assert [(own["alpha"], own["client_lr"]) for own in suggested["probe"]["trials"][:3]] == [
        (alpha, 0.1) for alpha in ALPHAS
    ]
    best = min(suggested["probe"]["trials"], key=lambda own: own["level"])
    assert (suggested["alpha"], suggested["client_lr"]) == (scale_alpha(best["alpha"], 4, 50), best["client_lr"])
    assert len(suggested["probe"]["trials"]) == 6
    assert all(set(own["losses"]) == {"2", "3", "4"} for own in suggested["probe"]["trials"])
    assert list(tmp_path.iterdir()) == [file]
    shown = fedcm("advise", file, "--rounds", 4)
    assert f"algorithm.alpha={suggested['alpha']:g}" in shown.out, "the same probe gives the same advice"


def test_the_variance_is_that_of_the_experiments_cohorts(fedcm: Callable[..., Answer], tmp_path: Path) -> None:
    """Full batches have no noise, so V = (N·E[1/S] − 1)/(N − 1)·σ_g², with S of the run's cohorts."""
    fixed = ["--set", "client.batch_size=1000"]
    suggested = json.loads(fedcm("advise", write_experiment(tmp_path), "--rounds", 2, "--json", *fixed).out)
    diagnosis = suggested["probe"]["found"]
    assert diagnosis["round_noise"] == pytest.approx(0.0, abs=1e-9 * diagnosis["dissimilarity"])
    assert suggested["variance"] == pytest.approx((10 / 5 - 1) / 9 * diagnosis["dissimilarity"], rel=1e-6)
    assert suggested["ratio"] == pytest.approx(suggested["variance"] / diagnosis["gradient_square"])
    varying = [*fixed, "--set", "participation={kind='independent', probability=0.2}"]
    suggested = json.loads(fedcm("advise", write_experiment(tmp_path), "--rounds", 8, "--json", *varying).out)
    sizes = [len(Independent(0.2).cohort(10, seed=0, round=index)) for index in range(50)]
    inverse = np.mean([1 / size for size in sizes if size])
    assert suggested["setting"]["inverse_cohort"] == pytest.approx(inverse)
    assert suggested["setting"]["empty"] == sizes.count(0) / 50 > 0
    assert suggested["variance"] == pytest.approx(
        (10 * inverse - 1) / 9 * suggested["probe"]["found"]["dissimilarity"], rel=1e-6
    )


def test_a_trial_is_fedcm_itself(fedcm: Callable[..., Answer], tmp_path: Path) -> None:
    """The last loss of a trial is that of a run with this α, over the same training data."""
    file = write_experiment(tmp_path)
    changes = ["--set", "client.lr_decay=0.7", "--set", "server.lr=0.7"]
    suggested = json.loads(fedcm("advise", file, "--rounds", 3, "--json", *changes).out)
    values = ["--set", "rounds=3", "--set", "algorithm.alpha=0.3", *changes]
    answer = fedcm("run", file, "--runs-dir", tmp_path / "runs", *values)
    assert answer.code == 0, answer.err
    from safetensors.torch import load_file

    (model,) = (tmp_path / "runs").rglob("model.safetensors")
    setup = build(load_experiment_file(file).without_autotune(), None)
    network = setup.problem.bind(setup.problem.initial_params)
    network.load_state_dict(load_file(model))
    data = [setup.runner.data.client(client) for client in range(10)]
    losses = [setup.problem.loss(network(own.features), own.labels).item() for own in data]
    trials = {own["alpha"]: own["losses"] for own in suggested["probe"]["trials"] if own["client_lr"] == 0.1}
    assert trials[0.3]["3"] == pytest.approx(sum(losses) / 10, rel=1e-5)


def test_trials_are_judged_by_the_validation_loss_if_there_are_validation_data(
    fedcm: Callable[..., Answer], tmp_path: Path
) -> None:
    """The last loss of a trial is the `validation_loss` of a run with its α; the output says which loss was used."""
    file, held_back = write_experiment(tmp_path), ["--set", "data.validation=0.2"]
    suggested = json.loads(fedcm("advise", file, "--rounds", 3, "--json", *held_back).out)
    values = ["--set", "rounds=3", "--set", "algorithm.alpha=0.3", *held_back]
    answer = fedcm("run", file, "--runs-dir", tmp_path / "runs", *values)
    assert answer.code == 0, answer.err
    (metrics,) = (tmp_path / "runs").rglob("metrics.jsonl")
    last = json.loads(metrics.read_text().splitlines()[-1])
    trials = {own["alpha"]: own["losses"] for own in suggested["probe"]["trials"] if own["client_lr"] == 0.1}
    assert trials[0.3]["3"] == pytest.approx(last["validation_loss"], rel=1e-6)
    assert suggested["probe"]["judged_on"] == "validation"
    assert "the least validation loss" in suggested["reasons"][0]
    for changes, which in ((held_back, "validation"), ([], "training")):
        assert f"judged by their {which} loss" in fedcm("advise", file, "--rounds", 2, *changes).out


def test_settings_of_another_algorithm_are_not_passed_to_fedcm(fedcm: Callable[..., Answer], tmp_path: Path) -> None:
    file = write_experiment(tmp_path)
    file.write_text(file.read_text() + "[for.fedadam]\nserver.lr = 0.1\n")
    plain = json.loads(fedcm("advise", file, "--rounds", 2, "--json").out)
    other = json.loads(fedcm("advise", file, "--rounds", 2, "--json", "--set", "algorithm.name=fedadam").out)
    assert other["probe"]["trials"] == plain["probe"]["trials"]
    assert (plain["setting"]["alpha"], other["setting"]["alpha"]) == (0.1, None)


def make_setup(tmp_path: Path, *changes: str) -> TrainingSetup:
    return build(load_experiment_file(write_experiment(tmp_path), changes).without_autotune())


def test_the_test_data_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: Any) -> Any:
        raise AssertionError("the probe reads test data")

    monkeypatch.setattr(ArrayData, "test_slice", fail)
    assert probe(make_setup(tmp_path), 2).trials


def test_smaller_rates_are_tried_if_a_rate_diverges(tmp_path: Path) -> None:
    """1e6 explodes with every α; with a third of it the loss is made finite here, and that third is the centre."""
    from fedcm.advice import probe as probing

    diverging = make_setup(tmp_path, "client.lr=1e6")
    rates: list[float] = []

    def run_trial(work: Any, alpha: float, rate: float, start: float) -> Any:
        rates.append(rate)
        return Trial(alpha, rate, {} if rate == 1e6 else {2: alpha + 1e-9 * rate}), diverging_server

    diverging_server = FedCM().init_server(diverging.problem.initial_params)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(probing, "_run_trial", run_trial)
        patched.setattr(probing, "diagnose", lambda *given, **named: dict(DIAGNOSIS))
        probed = probe(diverging, 2)
    assert rates == [1e6] * 3 + [333333.0] * 3 + [111111.0]
    assert find_best_trial(probed.trials).client_lr == 111111.0


def test_a_probe_in_which_all_trials_diverge_raises(fedcm: Callable[..., Answer], tmp_path: Path) -> None:
    answer = fedcm("advise", write_experiment(tmp_path), "--rounds", 5, "--set", "client.lr=1e6")
    assert answer.code == 2
    assert "diverged within 5 rounds with every α and every η_l from 1.11e+05 to 1e+06; lower client.lr" in answer.err


def test_a_probe_with_empty_cohorts_raises(fedcm: Callable[..., Answer], tmp_path: Path) -> None:
    file = write_experiment(tmp_path)
    few = ["--set", "participation.kind=independent", "--set", "participation.probability=1e-9"]
    answer = fedcm("advise", file, "--rounds", 3, *few)
    assert answer.code == 2
    assert "the cohorts of the first 3 rounds are empty" in answer.err


def test_a_stop_request_ends_the_probe(tmp_path: Path) -> None:
    done: list[int] = []
    with pytest.raises(Stopped):
        probe(make_setup(tmp_path), 4, done.append, stop_requested=lambda: len(done) >= 5)
    assert len(done) == 5


def test_the_rounds_of_a_trial_follow_from_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = make_setup(tmp_path)
    monkeypatch.setattr("fedcm.advice.probe.estimate_training", lambda setup: 0.5)
    assert count_affordable_rounds(setup, 60.0) == 60 / 6 / 0.5
    assert count_affordable_rounds(setup, 1.0) == 10, "the minimum, unless the run is shorter"
    assert count_affordable_rounds(setup, 1e9) == 50, "the rounds of the run"


def test_the_loss_uses_several_clients_and_some_examples_of_large_ones(tmp_path: Path) -> None:
    from fedcm.advice.probe import _draw_examples

    examples = _draw_examples(make_setup(tmp_path, "split.clients=3", "participation.clients=2"))
    assert len(examples) == 3
    alone = _draw_examples(make_setup(tmp_path, "split.clients=1", "participation.clients=1"))
    assert [own.size for own in alone] == [1437]
    few = make_setup(tmp_path, "split.clients=2", "participation.clients=1")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("fedcm.advice.probe._EXAMPLES", 100)
        drawn = _draw_examples(few)
    assert [own.size for own in drawn] == [50, 50]
    assert len(set(drawn[0].labels.tolist())) > 5, "drawn from all examples, not the first ones"


def test_the_smoothness_of_a_parabola_is_its_curvature(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    features = torch.from_numpy(draw.standard_normal((30, 1)).astype(np.float32))
    data = ArrayData(
        Dataset("made", Examples(features, features[:, 0] * 0.5), None, None), np.split(np.arange(30), 5)
    ).prepare_for(torch.float64, torch.device("cpu"))
    problem = Problem(nn.Linear(1, 1, bias=False).double(), squared_error)
    runner = ClientRunner(FedCM(alpha=0.5), problem, data, LocalWork(6), seed=1)
    server = runner.algorithm.init_server(torch.tensor([3.0], dtype=torch.float64))
    curvatures = [2 * data.client(client).features.square().mean().item() for client in range(5)]
    smoothness = measure_smoothness(runner, server, Round(0, 0.01, 1.0, 0, 5, math.nan))
    assert smoothness == pytest.approx(float(np.median(curvatures)))
    assert measure_smoothness(runner, server, Round(0, 1e308, 1.0, 0, 5, math.nan)) is None
