"""Optuna behind two pure functions: the next settings, and whether a trial is hopeless."""

import builtins
import math
import statistics
import warnings
from typing import Any

import optuna
import pytest

from fedcm.errors import UserError
from fedcm.tuning.objective import LOSS, ValidationMetric
from fedcm.tuning.sampler import find_hopeless_round, load_optuna, measure_importance, suggest
from fedcm.tuning.space import TunedChoices, TunedRange
from fedcm.tuning.trials import TuningTrial

ACCURACY = ValidationMetric("validation_accuracy", higher_is_better=True, is_share=True)
SPACE = {
    "client.lr": TunedRange(0.001, 1.0, log=True),
    "client.epochs": TunedRange(1, 9, whole=True, step=3.0),
    "server.lr": TunedRange(0.5, 1.55, step=0.1),
    "model.hidden": TunedChoices(([64, 32], [128])),
}


def score(settings: dict[str, Any]) -> float:
    return -abs(math.log10(settings["client.lr"] / 0.1))


def make_trials(count: int, seed: int = 1, metric: ValidationMetric = ACCURACY, **changes: Any) -> list[TuningTrial]:
    """Finished trials of a search, as the sampler chooses them."""
    sign = 1 if metric.higher_is_better else -1
    trials: list[TuningTrial] = []
    for number in range(count):
        settings = suggest(SPACE, trials, seed, "fedcm", number)
        points = [(round, sign * score(settings)) for round in range(8)]
        trials.append(
            TuningTrial("fedcm", number, settings, "", "finished", metric, points[-1][1], points, 8, **changes)
        )
    return trials


def test_suggestions_are_a_function_of_the_seed_and_the_trials_before() -> None:
    first, again, other = make_trials(14), make_trials(14), make_trials(14, seed=2)
    assert [trial.settings for trial in first] == [trial.settings for trial in again]
    assert all(one.settings != two.settings for one, two in zip(first, other, strict=True))
    assert suggest(SPACE, first[:12], 1, "fedcm", 12) == first[12].settings, (
        "a resumed search continues in the same way"
    )
    assert suggest(SPACE, [], 1, "fedavg", 0) != first[0].settings, "every algorithm draws for itself"


def test_suggestions_are_values_of_the_space() -> None:
    for trial in make_trials(14):
        assert 0.001 <= trial.settings["client.lr"] <= 1
        assert trial.settings["client.epochs"] in (1, 4, 7)
        assert isinstance(trial.settings["client.epochs"], int)
        assert trial.settings["server.lr"] in [round(0.5 + 0.1 * k, 1) for k in range(11)]
        assert trial.settings["model.hidden"] in ([64, 32], [128])


@pytest.mark.parametrize("metric", [ACCURACY, LOSS])
def test_later_suggestions_are_near_the_best_trials(metric: ValidationMetric) -> None:
    trials = make_trials(40, metric=metric)
    distances = [-score(trial.settings) for trial in trials]
    assert statistics.mean(distances[20:]) < 0.5 * statistics.mean(distances[:10])


@pytest.mark.parametrize("metric", [ACCURACY, LOSS])
def test_diverged_trials_are_the_worst(metric: ValidationMetric) -> None:
    sign = 1 if metric.higher_is_better else -1

    def search(diverge: bool) -> list[float]:
        trials: list[TuningTrial] = []
        for number in range(40):
            settings = suggest(SPACE, trials, 1, "fedcm", number)
            failed = diverge and settings["client.lr"] > 0.03
            state = "diverged" if failed else "finished"
            value = None if failed else sign * settings["client.lr"]  # the larger, the better, until it diverges
            own = None if failed else metric  # it diverged before it was evaluated
            trials.append(TuningTrial("fedcm", number, settings, "", state, own, value, [], 8))
        return [trial.settings["client.lr"] for trial in trials[20:]]

    assert statistics.median(search(diverge=True)) < 0.1 < statistics.median(search(diverge=False))


def test_running_trials_are_avoided_and_warnings_are_not_printed() -> None:
    done = make_trials(12)
    running = TuningTrial("fedcm", 12, suggest(SPACE, done, 1, "fedcm", 12), "")
    verbosity = optuna.logging.get_verbosity()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        settings = suggest(SPACE, [*done, running], 1, "fedcm", 13)
    assert settings != running.settings
    assert optuna.logging.get_verbosity() == verbosity


def make_curves(*ends: float, metric: ValidationMetric = ACCURACY) -> list[TuningTrial]:
    """Finished trials whose curves grow linearly to the given ends in 20 rounds."""
    return [
        TuningTrial(
            "fedcm", k, {}, "", "finished", metric, end, [(round, end * (round + 1) / 20) for round in range(20)], 20
        )
        for k, end in enumerate(ends)
    ]


def literal_median_rule(points: list[tuple[int, float]], others: list[TuningTrial], rounds: int) -> int | None:
    """The rule as the documentation states it: worse than the median of the others, after a quarter of the rounds."""
    if len(others) < 5:
        return None
    for k, (round, _) in enumerate(points):
        best = max(value for _, value in points[: k + 1])
        if round >= math.ceil(rounds / 4) and best < statistics.median(dict(other.points)[round] for other in others):
            return round
    return None


@pytest.mark.parametrize("end", [0.0, 0.2, 0.49, 0.5, 0.51, 0.9])
@pytest.mark.parametrize("count", [4, 5, 7])
def test_a_trial_below_the_median_is_hopeless(end: float, count: int) -> None:
    others = make_curves(0.3, 0.9, 0.5, 0.4, 0.6, 0.5, 0.5)[:count]
    points = [(round, end * (round + 1) / 20) for round in range(20)]
    expected = literal_median_rule(points, others, 20)
    assert find_hopeless_round(points, others, 20) == expected
    assert (expected is not None) == (end < 0.5 and count >= 5)


def test_a_low_loss_is_not_hopeless() -> None:
    others = make_curves(5.0, 4.0, 6.0, 5.0, 5.0, metric=LOSS)
    assert find_hopeless_round([(k, 0.01) for k in range(20)], others, 20) is None
    assert find_hopeless_round([(k, 9.0) for k in range(20)], others, 20) == 5


def test_the_moment_of_the_question_does_not_matter() -> None:
    others = make_curves(0.9, 0.8, 0.7, 0.9, 0.8)
    points = [(k, 0.45) for k in range(20)]
    at_once = find_hopeless_round(points, others, 20)
    step_by_step = next(
        round
        for count in range(20)
        if (round := find_hopeless_round(points[: count + 1], others, 20, count)) is not None
    )
    assert at_once == step_by_step == 11, "where the median, 0.8·(k + 1)/20, exceeds 0.45"


def test_pruned_trials_do_not_move_the_median() -> None:
    others = make_curves(0.9, 0.8, 0.7, 0.9, 0.8)
    pruned = make_curves(*[0.0] * 20)
    for trial in pruned:
        trial.state = "pruned"
    points = [(k, 0.3) for k in range(20)]
    assert find_hopeless_round(points, [*others, *pruned], 20) == find_hopeless_round(points, others, 20)


def test_the_setting_that_decides_the_score_is_the_most_important() -> None:
    trials = make_trials(20)
    shares = measure_importance(SPACE, trials)
    assert max(shares, key=lambda path: shares[path]) == "client.lr"
    assert sum(shares.values()) == pytest.approx(1)
    assert measure_importance(SPACE, trials) == shares
    assert measure_importance(SPACE, trials[:3]) == {}
    assert measure_importance({"client.lr": SPACE["client.lr"]}, trials) == {}


def test_a_missing_extra_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = builtins.__import__

    def refuse(name: str, *rest: Any, **more: Any) -> Any:
        if name == "optuna":
            raise ModuleNotFoundError("No module named 'optuna'", name="optuna")
        return usual(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(UserError, match=r'^tuning requires Optuna.* install it with `pip install "fedcm\[tune\]"`$'):
        load_optuna()
