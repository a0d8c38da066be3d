"""The probe for advice, and its command: trials are FedCM itself, fair, stopped when asked."""

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

from fedcm.advise.advice import ALPHAS, Trial, at_horizon, best_of
from fedcm.advise.probe import count_affordable_rounds, probe, smoothness
from fedcm.algorithms.fedcm import FedCM
from fedcm.config.experiment import load_experiment
from fedcm.core.algorithm import Round
from fedcm.core.losses import squared_error
from fedcm.core.participation import Independent
from fedcm.core.problem import Problem
from fedcm.data.batches import LocalWork
from fedcm.data.dataset import Dataset, Examples
from fedcm.data.federated import ArrayData
from fedcm.errors import Stopped
from fedcm.executors.client_runner import ClientRunner
from fedcm.runs.assembly import Assembly, assemble
from fedcm.sweeps.estimate import without_trial

FOUND = {
    "gradient_square": 1.0,
    "noise": 20.0,
    "round_noise": 0.2,
    "dissimilarity": 5.0,
    "direction_cosine": 0.3,
    "momentum_cosine": 0.6,
}


def own_file(tmp_path: Path) -> Path:
    file = tmp_path / "own.toml"
    file.write_text(
        'name = "own"\nrounds = 50\n[split]\nkind = "iid"\nclients = 10\n[participation]\nkind = "fixed"\nclients = 5\n'
        '[model]\nname = "mlp"\nhidden = [8]\n[algorithm]\nname = "fedcm"\n'
    )
    return file


def test_the_command_tells_and_writes_nothing(fedcm: Callable[..., Answer], tmp_path: Path) -> None:
    file = own_file(tmp_path)
    answer = fedcm("advise", file, "--rounds", 4, "--json")
    assert answer.code == 0, answer.err
    told = json.loads(answer.out)
    assert told["probe"]["rounds"] == 4
    assert [(own["alpha"], own["client_lr"]) for own in told["probe"]["trials"][:3]] == [
        (alpha, 0.1) for alpha in ALPHAS
    ]
    best = min(told["probe"]["trials"], key=lambda own: own["level"])
    assert (told["alpha"], told["client_lr"]) == (at_horizon(best["alpha"], 4, 50), best["client_lr"])
    assert len(told["probe"]["trials"]) == 6
    assert all(set(own["losses"]) == {"2", "3", "4"} for own in told["probe"]["trials"])
    assert list(tmp_path.iterdir()) == [file]
    shown = fedcm("advise", file, "--rounds", 4)
    assert f"algorithm.alpha={told['alpha']:g}" in shown.out, "the same probe gives the same advice"


def test_the_variance_that_it_tells_is_that_of_the_experiments_own_rounds(
    fedcm: Callable[..., Answer], tmp_path: Path
) -> None:
    """Full batches leave no noise, so V is of the cohorts alone: (N·E[1/S] − 1)/(N − 1)·σ_g², S as the run draws it."""
    fixed = ["--set", "client.batch_size=1000"]
    told = json.loads(fedcm("advise", own_file(tmp_path), "--rounds", 2, "--json", *fixed).out)
    found = told["probe"]["found"]
    assert found["round_noise"] == pytest.approx(0.0, abs=1e-9 * found["dissimilarity"])
    assert told["variance"] == pytest.approx((10 / 5 - 1) / 9 * found["dissimilarity"], rel=1e-6)
    assert told["ratio"] == pytest.approx(told["variance"] / found["gradient_square"])
    varying = [*fixed, "--set", "participation={kind='independent', probability=0.2}"]
    told = json.loads(fedcm("advise", own_file(tmp_path), "--rounds", 8, "--json", *varying).out)
    sizes = [len(Independent(0.2).cohort(10, seed=0, round=index)) for index in range(50)]
    inverse = np.mean([1 / size for size in sizes if size])
    assert told["setting"]["inverse_cohort"] == pytest.approx(inverse)
    assert told["setting"]["empty"] == sizes.count(0) / 50 > 0
    assert told["variance"] == pytest.approx((10 * inverse - 1) / 9 * told["probe"]["found"]["dissimilarity"], rel=1e-6)


def test_a_trial_is_fedcm_itself(fedcm: Callable[..., Answer], tmp_path: Path) -> None:
    """The loss of a trial's last round is that of a run with this α, over the same clients' training data."""
    file = own_file(tmp_path)
    changes = ["--set", "client.lr_decay=0.7", "--set", "server.lr=0.7"]
    told = json.loads(fedcm("advise", file, "--rounds", 3, "--json", *changes).out)
    values = ["--set", "rounds=3", "--set", "algorithm.alpha=0.3", *changes]
    answer = fedcm("run", file, "--runs-dir", tmp_path / "runs", *values)
    assert answer.code == 0, answer.err
    from safetensors.torch import load_file

    (model,) = (tmp_path / "runs").rglob("model.safetensors")
    assembly = assemble(without_trial(load_experiment(file)), None)
    network = assembly.problem.bind(assembly.problem.initial())
    network.load_state_dict(load_file(model))
    data = [assembly.runner.data.client(client) for client in range(10)]
    losses = [assembly.problem.loss(network(own.features), own.labels).item() for own in data]
    trials = {own["alpha"]: own["losses"] for own in told["probe"]["trials"] if own["client_lr"] == 0.1}
    assert trials[0.3]["3"] == pytest.approx(sum(losses) / 10, rel=1e-5)


def test_what_another_algorithm_needs_is_not_given_to_fedcm(fedcm: Callable[..., Answer], tmp_path: Path) -> None:
    file = own_file(tmp_path)
    file.write_text(file.read_text() + "[for.fedadam]\nserver.lr = 0.1\n")
    plain = json.loads(fedcm("advise", file, "--rounds", 2, "--json").out)
    other = json.loads(fedcm("advise", file, "--rounds", 2, "--json", "--set", "algorithm.name=fedadam").out)
    assert other["probe"]["trials"] == plain["probe"]["trials"]
    assert (plain["setting"]["alpha"], other["setting"]["alpha"]) == (0.1, None)


def assembly_of(tmp_path: Path, *changes: str) -> Assembly:
    return assemble(without_trial(load_experiment(own_file(tmp_path), changes)), None)


def test_test_data_are_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*given: Any) -> Any:
        raise AssertionError("the probe reads test data")

    monkeypatch.setattr(ArrayData, "test", refused)
    assert probe(assembly_of(tmp_path), 2).trials


def test_where_a_rate_diverges_smaller_ones_are_tried(tmp_path: Path) -> None:
    """1e6 explodes with every α; with a third of it the loss is made finite here, and that third is the centre."""
    from fedcm.advise import probe as probing

    diverging = assembly_of(tmp_path, "client.lr=1e6")
    asked: list[float] = []

    def trained(work: Any, alpha: float, rate: float, start: float) -> Any:
        asked.append(rate)
        return Trial(alpha, rate, {} if rate == 1e6 else {2: alpha + 1e-9 * rate}), diverging_server

    diverging_server = FedCM().init_server(diverging.problem.initial())
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(probing, "_trial", trained)
        patched.setattr(probing, "diagnose", lambda *given, **named: dict(FOUND))
        seen = probe(diverging, 2)
    assert asked == [1e6] * 3 + [333333.0] * 3 + [111111.0]
    assert best_of(seen.trials).client_lr == 111111.0


def test_where_everything_diverges_it_is_said(fedcm: Callable[..., Answer], tmp_path: Path) -> None:
    answer = fedcm("advise", own_file(tmp_path), "--rounds", 5, "--set", "client.lr=1e6")
    assert answer.code == 2
    assert "diverged within 5 rounds with every α and every η_l from 1.11e+05 to 1e+06; lower client.lr" in answer.err


def test_a_probe_in_which_nobody_takes_part_is_refused(fedcm: Callable[..., Answer], tmp_path: Path) -> None:
    file = own_file(tmp_path)
    few = ["--set", "participation.kind=independent", "--set", "participation.probability=1e-9"]
    answer = fedcm("advise", file, "--rounds", 3, *few)
    assert answer.code == 2
    assert "nobody takes part in the first 3 rounds" in answer.err


def test_a_wish_to_stop_ends_the_probe(tmp_path: Path) -> None:
    done: list[int] = []
    with pytest.raises(Stopped):
        probe(assembly_of(tmp_path), 4, done.append, stop_requested=lambda: len(done) >= 5)
    assert len(done) == 5


def test_a_trial_has_as_many_rounds_as_the_time_allows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assembly = assembly_of(tmp_path)
    monkeypatch.setattr("fedcm.advise.probe.seconds_of_training", lambda assembly: 0.5)
    assert count_affordable_rounds(assembly, 60.0) == 60 / 6 / 0.5
    assert count_affordable_rounds(assembly, 1.0) == 10, "never fewer, unless the run is shorter"
    assert count_affordable_rounds(assembly, 1e9) == 50, "the run's own"


def test_a_large_client_counts_by_some_of_its_examples_and_not_alone(tmp_path: Path) -> None:
    from fedcm.advise.probe import _listened_to

    listened = _listened_to(assembly_of(tmp_path, "split.clients=3", "participation.clients=2"))
    assert len(listened) == 3
    alone = _listened_to(assembly_of(tmp_path, "split.clients=1", "participation.clients=1"))
    assert [own.size for own in alone] == [1437]
    few = assembly_of(tmp_path, "split.clients=2", "participation.clients=1")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("fedcm.advise.probe._EXAMPLES", 100)
        drawn = _listened_to(few)
    assert [own.size for own in drawn] == [50, 50]
    assert len(set(drawn[0].labels.tolist())) > 5, "drawn from all of them, not the first"


def test_the_smoothness_of_a_parabola_is_its_curvature(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    features = torch.from_numpy(draw.standard_normal((30, 1)).astype(np.float32))
    data = ArrayData(
        Dataset("made", Examples(features, features[:, 0] * 0.5), None, None), np.split(np.arange(30), 5)
    ).ready_for(torch.float64, torch.device("cpu"))
    problem = Problem(nn.Linear(1, 1, bias=False).double(), squared_error)
    runner = ClientRunner(FedCM(alpha=0.5), problem, data, LocalWork(6), seed=1)
    server = runner.algorithm.init_server(torch.tensor([3.0], dtype=torch.float64))
    curvatures = [2 * data.client(client).features.square().mean().item() for client in range(5)]
    found = smoothness(runner, server, Round(0, 0.01, 1.0, 0, 5, math.nan))
    assert found == pytest.approx(float(np.median(curvatures)))
    assert smoothness(runner, server, Round(0, 1e308, 1.0, 0, 5, math.nan)) is None
