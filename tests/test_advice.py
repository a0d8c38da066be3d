"""Advice: what follows from a probe, what it warns of, and the command."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scenes import Answer

from fedcm.advice import ALPHAS, Probe, Setting, Trial, advise, at_horizon, best_of, round_variance, variations

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
        (0.3, 10, 80, 0.12),  # … and never below ten fillings
        (0.3, 50, 20, 0.3),
    ],
)
def test_alpha_falls_with_the_horizon(alpha: float, probed: int, rounds: int, told: float) -> None:
    assert at_horizon(alpha, probed, rounds) == told


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"alpha": 0.01}, "α = 0.01 remembers 100 rounds, over a tenth"),
        ({"steps": 500.0}, "K·η_l·L = 50.0"),
        ({"steps_most": 40}, "from 10 to 40 local steps"),
        ({"cohort": 2.0}, "2 clients a round are few: the variance of a round's mean gradient is 2.6 times"),
        ({"empty": 0.13}, "13% of the rounds have nobody"),
        ({"decay_in_step": True, "alpha": 0.05}, "λ/α = 0.02 in place of 0.001"),
    ],
)
def test_it_warns_of_what_can_go_wrong_and_of_nothing_else(changes: dict[str, Any], words: str) -> None:
    assert not advise(setting(), seen()).warnings
    assert any(words in warning for warning in advise(setting(**changes), seen()).warnings)


def test_it_warns_of_a_rate_at_the_edge_and_of_an_alpha_that_is_fedavg() -> None:
    edge = tuple(own if own.client_lr < 0.3 else own._replace(losses={}) for own in seen().trials)
    assert any("near the edge" in warning for warning in advise(setting(), seen()._replace(trials=edge)).warnings)
    plain = (trial(1.0, 0.1, 1.0, 1.0, 1.0), trial(0.3, 0.1, 2.0, 2.0, 2.0))
    assert any("no trial has learnt" in warning for warning in advise(setting(), seen()._replace(start=1.0)).warnings)
    plain_advice = advise(setting(rounds=50), seen()._replace(trials=plain))
    assert any("nearly FedAvg" in warning for warning in plain_advice.warnings)


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
    assert told["probe_rounds"] == 4
    assert [(own["alpha"], own["client_lr"]) for own in told["trials"][:3]] == [(alpha, 0.1) for alpha in ALPHAS]
    best = min(told["trials"], key=lambda own: own["level"])
    assert (told["alpha"], told["client_lr"]) == (at_horizon(best["alpha"], 4, 50), best["client_lr"])
    assert len(told["trials"]) == 6
    assert all(set(own["losses"]) == {"2", "3", "4"} for own in told["trials"])
    assert list(tmp_path.iterdir()) == [file]
    shown = fedcm("advise", file, "--rounds", 4)
    assert f"algorithm.alpha={told['alpha']:g}" in shown.out, "the same probe gives the same advice"


def test_a_trial_is_fedcm_itself(fedcm: Callable[..., Answer], tmp_path: Path) -> None:
    """The loss of a trial's last round is that of a run with this α, over the same clients' training data."""
    from fedcm.assembly import assemble
    from fedcm.experiment import load
    from fedcm.planning import without_trial

    file = own_file(tmp_path)
    told = json.loads(fedcm("advise", file, "--rounds", 3, "--json").out)
    answer = fedcm("run", file, "--runs-dir", tmp_path / "runs", "--set", "rounds=3", "--set", "algorithm.alpha=0.3")
    assert answer.code == 0, answer.err
    from safetensors.torch import load_file

    (model,) = (tmp_path / "runs").rglob("model.safetensors")
    assembly = assemble(without_trial(load(file)), None)
    network = assembly.problem.bind(assembly.problem.initial())
    network.load_state_dict(load_file(model))
    data = [assembly.runner.data.client(client) for client in range(10)]
    losses = [assembly.problem.loss(network(own.features), own.labels).item() for own in data]
    trials = {own["alpha"]: own["losses"] for own in told["trials"] if own["client_lr"] == 0.1}
    assert trials[0.3]["3"] == pytest.approx(sum(losses) / 10, rel=1e-5)


def test_where_everything_diverges_smaller_rates_are_tried_and_then_it_is_said(
    fedcm: Callable[..., Answer], tmp_path: Path
) -> None:
    answer = fedcm("advise", own_file(tmp_path), "--rounds", 5, "--set", "client.lr=1e6")
    assert answer.code == 2
    assert "diverged within 5 rounds with every α and every η_l from 1.11e+05 to 1e+06; lower client.lr" in answer.err
