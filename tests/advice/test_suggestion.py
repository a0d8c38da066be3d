"""Advice: the suggestion that follows from a probe, and its warnings."""

import math
from typing import Any

import pytest

from fedcm.advice.suggestion import (
    ALPHAS,
    ExperimentProfile,
    ProbeResult,
    Trial,
    find_best_trial,
    list_further_pairs,
    scale_alpha,
    suggest_settings,
)

DIAGNOSIS = {
    "gradient_square": 1.0,
    "noise": 20.0,
    "round_noise": 0.2,
    "dissimilarity": 5.0,
    "direction_cosine": 0.3,
    "momentum_cosine": 0.6,
}


def make_trial(alpha: float, rate: float, *losses: float) -> Trial:
    return Trial(alpha, rate, dict(zip((30, 40, 50), losses, strict=True)))


def make_profile(**changes: Any) -> ExperimentProfile:
    usual = ExperimentProfile(
        rounds=500,
        population=500,
        cohort_size=10.0,
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


def make_probe(**changes: Any) -> ProbeResult:
    """Return a probe in which α = 0.3 at η_l = 0.1 is the best trial."""
    trials = [make_trial(alpha, 0.1, *([1.5, 1.4, 1.3] if alpha == 0.3 else [1.8, 1.7, 1.6])) for alpha in ALPHAS]
    more = [
        make_trial(0.3, 0.03, 2.0, 2.0, 1.9),
        make_trial(0.3, 0.3, 1.6, 1.5, 1.4),
        make_trial(0.1, 0.3, 1.6, 1.5, 1.4),
    ]
    return ProbeResult(50, 2.3, (*trials, *more), DIAGNOSIS | changes, smoothness=1.0)


def test_the_variance_of_a_rounds_mean_gradient() -> None:
    """V = noise/S + (N − S)/(N − 1)·σ_g²/S; test_estimates.py proves the formula."""
    assert suggest_settings(make_profile(), make_probe()).variance == pytest.approx(0.2 / 10 + 490 / 499 * 0.5)
    everyone = suggest_settings(make_profile(cohort_size=500.0, inverse_cohort=1 / 500), make_probe())
    assert everyone.variance == pytest.approx(0.2 / 500)
    few = suggest_settings(make_profile(cohort_size=2.0, inverse_cohort=0.7), make_probe())
    assert few.variance == pytest.approx(0.7 * 0.2 + 349 / 499 * 5), "E[1/S] is above 1/E[S]"


def test_there_is_no_ratio_if_the_gradient_may_be_0() -> None:
    few = {"cohort_size": 2.0, "inverse_cohort": 0.5}
    assert suggest_settings(make_profile(**few), make_probe(gradient_square=4.0)).ratio == pytest.approx(
        (0.1 + 249 / 499 * 5) / 4
    )
    advice = suggest_settings(make_profile(**few), make_probe(gradient_square=-0.1))
    assert advice.ratio is None
    assert "the gradient's square cannot be distinguished from 0" in advice.warnings[0]


def test_the_level_of_a_trial_is_the_geometric_mean_of_its_losses() -> None:
    assert make_trial(1.0, 0.1, 1.0, 2.0, 4.0).level == pytest.approx(2.0)
    assert find_best_trial([make_trial(1.0, 0.1, 1.0, 2.0, 4.0), make_trial(0.3, 0.1, 2.1, 2.1, 2.1)]).alpha == 1.0


def test_a_trial_that_diverged_never_wins() -> None:
    diverged = Trial(0.3, 0.3, {})
    assert diverged.level == math.inf
    assert find_best_trial([diverged, make_trial(1.0, 0.1, 100.0, 100.0, 100.0)]).alpha == 1.0


def test_variations_have_other_rates_and_a_smaller_alpha() -> None:
    assert list_further_pairs(make_trial(0.3, 0.1, 1.0, 1.0, 1.0)) == [
        (0.3, pytest.approx(0.1 / 3)),
        (0.3, pytest.approx(0.3)),
        (0.1, pytest.approx(0.3)),
    ]


def test_advice_is_the_best_trial_with_alpha_scaled_to_the_run() -> None:
    advice = suggest_settings(make_profile(rounds=400), make_probe())
    assert (advice.alpha, advice.client_lr) == (0.075, 0.1)
    assert "0.3 · (50/400)^⅔" in advice.reasons[1]
    same_length = suggest_settings(make_profile(rounds=50), make_probe())
    assert same_length.alpha == 0.3
    assert not any("⅔" in reason for reason in same_length.reasons), "a probe as long as the run needs no scaling"


@pytest.mark.parametrize(
    ("alpha", "probe_rounds", "rounds", "expected"),
    [
        (0.3, 50, 400, 0.075),  # an eighth of the rounds is a quarter of α
        (1.0, 50, 6250, 0.04),
        (0.1, 10, 80, 0.1),  # never above the best trial's α …
        (0.3, 10, 80, 0.13),  # … and never below 10/T
        (0.3, 50, 20, 0.3),
    ],
)
def test_alpha_falls_with_the_number_of_rounds(alpha: float, probe_rounds: int, rounds: int, expected: float) -> None:
    assert scale_alpha(alpha, probe_rounds, rounds) == expected


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"alpha": 0.01}, "the experiment's α = 0.01 averages over 100 rounds, more than a tenth"),
        ({"steps": 500.0}, "K·η_l·L = 50.0"),
        ({"steps_most": 40}, "from 10 to 40 local steps, and their directions count equally"),
        ({"steps_most": 40, "by_examples": True}, "from 10 to 40 local steps, so some drift much farther"),
        (
            {"cohort_size": 2.0, "inverse_cohort": 0.5},
            "few clients per round (2 on average): the variance of a round's mean gradient is 2.6 times",
        ),
        ({"empty": 0.13}, "13% of the rounds have an empty cohort"),
        (
            {"decay_in_step": True, "alpha": 0.05},
            "acts like λ/α, 0.02 with α = 0.05 and 0.015 with α = 0.065, instead of 0.001",
        ),
    ],
)
def test_each_risk_has_exactly_one_warning(changes: dict[str, Any], text: str) -> None:
    assert not suggest_settings(make_profile(), make_probe()).warnings
    (warning,) = suggest_settings(make_profile(**changes), make_probe()).warnings
    assert text in warning


@pytest.mark.parametrize(
    "changes", [{"cohort_size": 1.0, "population": 1}, {"rounds": 5}, {"alpha": 1.0, "rounds": 50}]
)
def test_harmless_settings_have_no_warning(
    changes: dict[str, Any],
) -> None:
    assert not suggest_settings(make_profile(**changes), make_probe()).warnings


def test_no_suggested_alpha_is_below_ten_over_rounds() -> None:
    for rounds in range(100, 3000, 7):
        assert scale_alpha(0.1, 10, rounds) >= min(0.1, 10 / rounds)


def collect_warnings(**changes: Any) -> str:
    return " ".join(suggest_settings(make_profile(rounds=50), make_probe()._replace(**changes)).warnings)


def test_a_rate_close_to_the_limit_has_a_warning() -> None:
    edge = tuple(own if own.client_lr < 0.3 else own._replace(losses={}) for own in make_probe().trials)
    assert "close to the limit" in collect_warnings(trials=edge)


def test_trials_that_learn_nothing_and_exploding_steps_have_warnings() -> None:
    assert "no trial reduced the training loss" in collect_warnings(start=1.0)
    assert "local steps of some clients explode" in collect_warnings(smoothness=None)


def test_a_large_alpha_has_a_warning() -> None:
    assert "nearly FedAvg" in collect_warnings(
        trials=(make_trial(1.0, 0.1, 1.0, 1.0, 1.0), make_trial(0.3, 0.1, 2.0, 2.0, 2.0))
    )
