"""Advice: what follows from a probe, what it warns of, and the command."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scenes import Answer

from fedcm.advice import ALPHAS, Probe, Setting, Trial, advise, beyond, most_promising, round_variance

FOUND = {
    "gradient_norm": 1.0,
    "noise": 2.0,
    "dissimilarity": 5.0,
    "direction_cosine": 0.3,
    "momentum_cosine": 0.6,
}
MARKS = (10, 15, 20, 25, 30)


def trial(alpha: float, rate: float, scale: float, exponent: float) -> Trial:
    """Its loss is exactly a power law."""
    return Trial(alpha, rate, {mark: scale * mark**-exponent for mark in MARKS})


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
    """0.2 at 0.1 wins."""
    trials = [trial(alpha, 0.1, 3.0, 0.3 if alpha == 0.2 else 0.2) for alpha in ALPHAS]
    return Probe(2.3, (*trials, trial(0.2, 0.03, 3.0, 0.1), trial(0.2, 0.3, 3.0, 0.1)), FOUND | changes, smoothness=1.0)


def test_the_variance_is_that_of_a_rounds_mean_gradient() -> None:
    """σ_l²/(K·S) + (1 − S/N)·σ_g²/S; with everybody there, sampling adds nothing."""
    assert round_variance(2.0, 5.0, setting()) == pytest.approx(2 / 100 + 0.98 * 0.5)
    assert round_variance(2.0, 5.0, setting(cohort=500.0)) == pytest.approx(2 / 5000)


def test_a_loss_that_falls_like_a_power_is_foreseen_exactly() -> None:
    own = trial(0.1, 0.1, 4.0, 0.35)
    scale, exponent = own.power_law()
    assert (scale, exponent) == (pytest.approx(4.0), pytest.approx(0.35))
    assert own.foreseen(700) == pytest.approx(4.0 * 700**-0.35)
    assert Trial(0.1, 0.1, {20: 1.5}).foreseen(700) == pytest.approx(1.5), "one loss alone has no slope"


def test_a_trial_that_is_behind_and_falls_faster_wins_over_a_long_run_only() -> None:
    ahead, behind = trial(1.0, 0.1, 2.0, 0.1), trial(0.1, 0.1, 6.0, 0.4)
    assert ahead.losses[30] < behind.losses[30]
    assert most_promising([ahead, behind], 30) is ahead
    assert most_promising([ahead, behind], 1000) is behind


def test_a_trial_that_diverged_never_wins() -> None:
    diverged = Trial(0.4, 0.3, {})
    assert diverged.foreseen(100) == math.inf
    assert most_promising([diverged, trial(1.0, 0.1, 100.0, -1.0)], 100).alpha == 1.0


def test_alpha_and_rate_are_the_winners() -> None:
    advice = advise(setting(), seen())
    assert (advice.alpha, advice.client_lr) == (0.2, 0.1)
    assert f"{3.0 * 500**-0.3:.3g} is the least loss foreseen after 500 rounds" in advice.reasons[0]


@pytest.mark.parametrize("rounds", [100, 150, 400, 4000])
def test_beyond_the_smallest_that_was_tried_it_goes_half_the_way_to_fifteen_fillings(rounds: int) -> None:
    smallest = min(ALPHAS)
    told = beyond(smallest, rounds)
    assert told == pytest.approx(math.sqrt(smallest * min(smallest, 15 / rounds)), rel=0.05)
    assert beyond(2 * smallest, rounds) == 2 * smallest


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
    plain = (trial(1.0, 0.1, 1.0, 0.5), trial(0.4, 0.1, 1.0, 0.1))
    assert any("no trial has learnt" in warning for warning in advise(setting(), seen()._replace(start=1.0)).warnings)
    assert any("nearly FedAvg" in warning for warning in advise(setting(), seen()._replace(trials=plain)).warnings)


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
    assert [(own["alpha"], own["client_lr"]) for own in told["trials"][:4]] == [(alpha, 0.1) for alpha in ALPHAS]
    best = min(told["trials"], key=lambda own: own["foreseen"])
    assert (told["alpha"], told["client_lr"]) == (beyond(best["alpha"], 50), best["client_lr"])
    assert all(set(own["losses"]) == {"1", "2", "3", "4"} for own in told["trials"])
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
    answer = fedcm("run", file, "--runs-dir", tmp_path / "runs", "--set", "rounds=3", "--set", "algorithm.alpha=0.4")
    assert answer.code == 0, answer.err
    from safetensors.torch import load_file

    (model,) = (tmp_path / "runs").rglob("model.safetensors")
    assembly = assemble(without_trial(load(file)), None)
    network = assembly.problem.bind(assembly.problem.initial())
    network.load_state_dict(load_file(model))
    data = [assembly.runner.data.client(client) for client in range(10)]
    losses = [assembly.problem.loss(network(own.features), own.labels).item() for own in data]
    trials = {own["alpha"]: own["losses"] for own in told["trials"] if own["client_lr"] == 0.1}
    assert trials[0.4]["3"] == pytest.approx(sum(losses) / 10, rel=1e-5)


def test_where_everything_diverges_smaller_rates_are_tried_and_then_it_is_said(
    fedcm: Callable[..., Answer], tmp_path: Path
) -> None:
    answer = fedcm("advise", own_file(tmp_path), "--rounds", 5, "--set", "client.lr=1e6")
    assert answer.code == 2
    assert "diverged within 5 rounds with every α and every η_l from 1.11e+05 to 1e+06; lower client.lr" in answer.err
