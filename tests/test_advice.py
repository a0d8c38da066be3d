"""Advice: what follows from a probe, what it warns of, and the command."""

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

from fedcm.advice import ALPHAS, Probe, Setting, Trial, advise, at_horizon, best_of, round_variance, variations
from fedcm.algorithm import Round
from fedcm.algorithms.fedcm import FedCM
from fedcm.assembly import Assembly, assemble
from fedcm.data.batches import LocalWork
from fedcm.data.dataset import Dataset, Examples
from fedcm.data.federated import ArrayData
from fedcm.executors.executor import Stopped
from fedcm.executors.runner import ClientRunner
from fedcm.experiment import load
from fedcm.planning import without_trial
from fedcm.probing import FEWEST, affordable, probe, smoothness
from fedcm.problem import Problem, squared_error

FOUND = {
    "gradient_norm": 1.0,
    "noise": 2.0,
    "dissimilarity": 5.0,
    "direction_cosine": 0.3,
    "momentum_cosine": 0.6,
}


def trial(alpha: float, rate: float, *losses: float) -> Trial:
    return Trial(alpha, rate, dict(zip((30, 40, 50), losses, strict=True)))


def setting(**changes: Any) -> Setting:
    usual = Setting(
        rounds=500,
        population=500,
        cohort=10.0,
        empty=0.0,
        steps=10.0,
        steps_least=10,
        steps_most=10,
        by_examples=False,
        weight_decay=0.001,
        decay_in_step=False,
        alpha=None,
    )
    return usual._replace(**changes)


def seen(**changes: Any) -> Probe:
    """0.3 at 0.1 wins."""
    trials = [trial(alpha, 0.1, *([1.5, 1.4, 1.3] if alpha == 0.3 else [1.8, 1.7, 1.6])) for alpha in ALPHAS]
    more = [trial(0.3, 0.03, 2.0, 2.0, 1.9), trial(0.3, 0.3, 1.6, 1.5, 1.4), trial(0.1, 0.3, 1.6, 1.5, 1.4)]
    return Probe(50, 2.3, (*trials, *more), FOUND | changes, smoothness=1.0)


def test_the_variance_is_that_of_a_rounds_mean_gradient() -> None:
    """σ_l²/(K·S) + (1 − S/N)·σ_g²/S; with everybody there, sampling adds nothing."""
    assert round_variance(2.0, 5.0, setting()) == pytest.approx(2 / 100 + 0.98 * 0.5)
    assert round_variance(2.0, 5.0, setting(cohort=500.0)) == pytest.approx(2 / 5000)


def test_a_trials_level_is_the_geometric_mean_of_its_losses() -> None:
    assert trial(1.0, 0.1, 1.0, 2.0, 4.0).level == pytest.approx(2.0)
    assert best_of([trial(1.0, 0.1, 1.0, 2.0, 4.0), trial(0.3, 0.1, 2.1, 2.1, 2.1)]).alpha == 1.0


def test_a_trial_that_diverged_never_wins() -> None:
    diverged = Trial(0.3, 0.3, {})
    assert diverged.level == math.inf
    assert best_of([diverged, trial(1.0, 0.1, 100.0, 100.0, 100.0)]).alpha == 1.0


def test_beside_the_best_alpha_the_larger_rate_is_tried_with_the_clients_own_step_kept_too() -> None:
    assert variations(trial(0.3, 0.1, 1.0, 1.0, 1.0)) == [
        (0.3, pytest.approx(0.1 / 3)),
        (0.3, pytest.approx(0.3)),
        (0.1, pytest.approx(0.3)),
    ]


def test_alpha_and_rate_are_the_winners_the_alpha_at_the_runs_horizon() -> None:
    advice = advise(setting(rounds=400), seen())
    assert (advice.alpha, advice.client_lr) == (0.075, 0.1)
    assert "0.3 · (50/400)^⅔" in advice.reasons[1]
    at_once = advise(setting(rounds=50), seen())
    assert at_once.alpha == 0.3
    assert not any("⅔" in reason for reason in at_once.reasons), "a probe of the run's own length needs no rule"


@pytest.mark.parametrize(
    ("alpha", "probed", "rounds", "told"),
    [
        (0.3, 50, 400, 0.075),  # an eighth of the horizon is a quarter of α
        (1.0, 50, 6250, 0.04),
        (0.1, 10, 80, 0.1),  # never above what won …
        (0.3, 10, 80, 0.13),  # … and never below ten fillings
        (0.3, 50, 20, 0.3),
    ],
)
def test_alpha_falls_with_the_horizon(alpha: float, probed: int, rounds: int, told: float) -> None:
    assert at_horizon(alpha, probed, rounds) == told


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"alpha": 0.01}, "the experiment's α = 0.01 remembers 100 rounds, over a tenth"),
        ({"steps": 500.0}, "K·η_l·L = 50.0"),
        ({"steps_most": 40}, "from 10 to 40 local steps, and their directions count equally"),
        ({"steps_most": 40, "by_examples": True}, "from 10 to 40 local steps, so some drift much farther"),
        ({"cohort": 2.0}, "few clients a round (2 on the mean): the variance of a round's mean gradient is 2.6 times"),
        ({"empty": 0.13}, "13% of the rounds have nobody"),
        (
            {"decay_in_step": True, "alpha": 0.05},
            "acts like λ/α, 0.02 with α = 0.05 and 0.015 with α = 0.065, in place of 0.001",
        ),
    ],
)
def test_it_warns_of_what_can_go_wrong_and_of_nothing_else(changes: dict[str, Any], words: str) -> None:
    assert not advise(setting(), seen()).warnings
    (warning,) = advise(setting(**changes), seen()).warnings
    assert words in warning


@pytest.mark.parametrize("changes", [{"cohort": 1.0, "population": 1}, {"rounds": 5}, {"alpha": 1.0, "rounds": 50}])
def test_it_does_not_warn_of_everybody_of_its_own_advice_and_of_an_alpha_without_memory(
    changes: dict[str, Any],
) -> None:
    assert not advise(setting(**changes), seen()).warnings


def test_no_advised_alpha_is_below_ten_fillings() -> None:
    for rounds in range(100, 3000, 7):
        assert at_horizon(0.1, 10, rounds) >= min(0.1, 10 / rounds)


def warned(**changes: Any) -> str:
    return " ".join(advise(setting(rounds=50), seen()._replace(**changes)).warnings)


def test_it_warns_of_a_rate_at_the_edge() -> None:
    edge = tuple(own if own.client_lr < 0.3 else own._replace(losses={}) for own in seen().trials)
    assert "near the edge" in warned(trials=edge)


def test_it_warns_of_trials_that_learnt_nothing_and_of_steps_that_explode() -> None:
    assert "no trial has learnt" in warned(start=1.0)
    assert "local steps explode" in warned(smoothness=None)


def test_it_says_that_a_large_alpha_is_fedavg() -> None:
    assert "nearly FedAvg" in warned(trials=(trial(1.0, 0.1, 1.0, 1.0, 1.0), trial(0.3, 0.1, 2.0, 2.0, 2.0)))


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
    assembly = assemble(without_trial(load(file)), None)
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
    return assemble(without_trial(load(own_file(tmp_path), changes)), None)


def test_test_data_are_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*given: Any) -> Any:
        raise AssertionError("the probe reads test data")

    monkeypatch.setattr(ArrayData, "test", refused)
    assert probe(assembly_of(tmp_path), 2).trials


def test_where_a_rate_diverges_smaller_ones_are_tried(tmp_path: Path) -> None:
    """1e6 explodes with every α; with a third of it the loss is made finite here, and that third is the centre."""
    from fedcm import probing

    diverging = assembly_of(tmp_path, "client.lr=1e6")
    asked: list[float] = []

    def trained(work: Any, alpha: float, rate: float) -> Any:
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
    monkeypatch.setattr("fedcm.probing.seconds_of_training", lambda assembly: 0.5)
    assert affordable(assembly, 60.0) == 60 / 6 / 0.5
    assert affordable(assembly, 1.0) == FEWEST
    assert affordable(assembly, 1e9) == 50, "the run's own"


def test_a_large_client_counts_by_some_of_its_examples_and_not_alone(tmp_path: Path) -> None:
    from fedcm.probing import _listened_to

    listened = _listened_to(assembly_of(tmp_path, "split.clients=3", "participation.clients=2"))
    assert len(listened) == 3
    alone = _listened_to(assembly_of(tmp_path, "split.clients=1", "participation.clients=1"))
    assert [own.size for own in alone] == [1437]
    few = assembly_of(tmp_path, "split.clients=2", "participation.clients=1")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("fedcm.probing._EXAMPLES", 100)
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
