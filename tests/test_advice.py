"""Advice: what follows from a probe, what it warns of, and the command."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scenes import Answer

from fedcm.advice import Probe, Setting, advise, best_alpha, round_variance

FOUND = {"gradient_norm": 1.0, "noise": 2.0, "dissimilarity": 5.0, "direction_cosine": 0.3}


def setting(**changes: Any) -> Setting:
    usual = Setting(
        rounds=500,
        population=500,
        cohort=10.0,
        empty=0.0,
        steps=10.0,
        steps_least=10,
        steps_most=10,
        client_lr=0.1,
        weight_decay=0.001,
        decay_in_step=False,
        alpha=None,
    )
    return usual._replace(**changes)


def seen(**changes: Any) -> Probe:
    return Probe({0.03: 2.0, 0.1: 1.0, 0.3: 1.5}, FOUND | changes, smoothness=1.0)


def test_the_variance_is_that_of_a_rounds_mean_gradient() -> None:
    """σ_l²/(K·S) + (1 − S/N)·σ_g²/S; with everybody there, sampling adds nothing."""
    assert round_variance(2.0, 5.0, setting()) == pytest.approx(2 / 100 + 0.98 * 0.5)
    assert round_variance(2.0, 5.0, setting(cohort=500.0)) == pytest.approx(2 / 5000)


def test_alpha_is_where_the_two_costs_balance() -> None:
    """Of 1/(αT) + r·α/2 no other α on a fine grid is better, to the two digits that are told."""
    for ratio in (0.05, 0.5, 3.0):
        for rounds in (50, 400, 4000):
            told = best_alpha(ratio, rounds)
            cost = {a / 1000: 1000 / (a * rounds) + ratio * a / 2000 for a in range(10, 1001)}
            assert cost[min(cost, key=lambda a: abs(a - told))] <= 1.002 * min(cost.values())


@pytest.mark.parametrize(("more", "changes"), [("rounds", {"rounds": 5000}), ("fewer clients", {"cohort": 2.0})])
def test_a_longer_run_or_a_noisier_round_wants_a_smaller_alpha(more: str, changes: dict[str, Any]) -> None:
    assert advise(setting(**changes), seen()).alpha < advise(setting(), seen()).alpha


def test_the_rate_is_the_one_that_lowered_the_loss_most_and_the_larger_of_equals() -> None:
    assert advise(setting(), seen()).client_lr == 0.1
    assert advise(setting(), seen()._replace(losses={0.03: 2.0, 0.1: 1.0, 0.3: 1.01})).client_lr == 0.3
    assert advise(setting(), seen()._replace(losses={0.03: 2.0, 0.1: 2.5, 0.3: math.inf})).client_lr == 0.03


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"alpha": 0.01}, "α = 0.01 remembers 100 rounds, over a tenth"),
        ({"steps": 500.0}, "K·η_l·L = 50.0"),
        ({"steps_most": 40}, "from 10 to 40 local steps"),
        ({"cohort": 2.0}, "2 clients a round are few"),
        ({"empty": 0.13}, "13% of the rounds have nobody"),
        ({"decay_in_step": True, "alpha": 0.05}, "λ/α = 0.02 in place of 0.001"),
        ({"rounds": 4}, "nearly FedAvg"),
    ],
)
def test_it_warns_of_what_can_go_wrong_and_of_nothing_else(changes: dict[str, Any], words: str) -> None:
    assert not advise(setting(), seen()).warnings
    assert any(words in warning for warning in advise(setting(**changes), seen()).warnings)


def test_the_command_tells_and_writes_nothing(fedcm: Callable[..., Answer], tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(
        'name = "own"\nrounds = 50\n[split]\nkind = "iid"\nclients = 10\n[participation]\nkind = "fixed"\nclients = 5\n'
        '[model]\nname = "mlp"\nhidden = [8]\n[algorithm]\nname = "fedcm"\n'
    )
    answer = fedcm("advise", file, "--rounds", 2, "--json")
    assert answer.code == 0, answer.err
    told = json.loads(answer.out)
    assert 0.01 <= told["alpha"] <= 1
    assert any(told["client_lr"] == pytest.approx(rate) for rate in (0.1 / 3, 0.1, 0.3))
    assert list(tmp_path.iterdir()) == [file]
    shown = fedcm("advise", file, "--rounds", 2)
    assert f"algorithm.alpha={told['alpha']:g}" in shown.out
