"""Advice: what follows from a probe, and what it warns of."""

import math
from typing import Any

import pytest

from fedcm.advise.advice import ALPHAS, Probe, Setting, Trial, advise, at_horizon, best_of, variations

FOUND = {
    "gradient_square": 1.0,
    "noise": 20.0,
    "round_noise": 0.2,
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
        inverse_cohort=0.1,
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
    """Of clients' rounds over S, and (N − S)/(N − 1)·σ_g²/S; with everybody there, sampling adds nothing. That this is
    the variance is shown in test_estimates.py."""
    assert advise(setting(), seen()).variance == pytest.approx(0.2 / 10 + 490 / 499 * 0.5)
    assert advise(setting(cohort=500.0, inverse_cohort=1 / 500), seen()).variance == pytest.approx(0.2 / 500)
    few = advise(setting(cohort=2.0, inverse_cohort=0.7), seen())
    assert few.variance == pytest.approx(0.7 * 0.2 + 349 / 499 * 5), "cohorts of 1 and more count for more than of 2"


def test_against_a_gradient_that_cannot_be_told_from_0_there_is_no_ratio() -> None:
    few = {"cohort": 2.0, "inverse_cohort": 0.5}
    assert advise(setting(**few), seen(gradient_square=4.0)).ratio == pytest.approx((0.1 + 249 / 499 * 5) / 4)
    advice = advise(setting(**few), seen(gradient_square=-0.1))
    assert advice.ratio is None
    assert "the gradient's square cannot be told from 0" in advice.warnings[0]


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
        (
            {"cohort": 2.0, "inverse_cohort": 0.5},
            "few clients a round (2 on the mean): the variance of a round's mean gradient is 2.6 times",
        ),
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
