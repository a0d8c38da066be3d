"""α and η_l for FedCM on these data, from what a probe (`fedcm.advise.probe`) saw: a pure function of it.

A trial of the probe is FedCM with one α and one η_l for P rounds; the one with the least loss over clients, in the
second half of its rounds, wins. Its η_l is suggested. Its α is the best for a run of P rounds, and the best α falls
with the horizon, because filling the momentum takes 1/α rounds and what it is good for comes after: suggested is

    α · (P/T)^⅔,        but no less than 10/T

The exponent is a rule of thumb, from sweeps on CIFAR-10 (docs/guides/diagnosis.md).
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np

from fedcm.executors.estimates import estimate_round_variance

ALPHAS = (1.0, 0.3, 0.1)  # tried at the experiment's η_l
_FALL = 2 / 3  # of α with the horizon
_FILLINGS = 10  # how often a momentum should be able to fill


class Trial(NamedTuple):
    alpha: float
    client_lr: float
    losses: dict[int, float]  # after so many rounds, in the second half; none where it diverged

    @property
    def level(self) -> float:
        """Their geometric mean: rounds differ in whom they have."""
        return (
            float(np.exp(np.mean(np.log(np.maximum(list(self.losses.values()), 1e-12))))) if self.losses else math.inf
        )


class Probe(NamedTuple):
    rounds: int  # P, of each trial
    start: float  # the loss before any round
    trials: tuple[Trial, ...]
    found: dict[str, float]  # a diagnosis at the end of the trial that won
    smoothness: float | None  # L along its local steps; None where they explode


class Setting(NamedTuple):
    """What the experiment says, in the theorem's letters."""

    rounds: int  # T
    population: int  # N
    cohort: float  # S, its mean
    inverse_cohort: float  # the mean of 1/S over the rounds with anybody
    empty: float  # the share of rounds without anybody
    steps: float  # K, its mean
    steps_least: int
    steps_most: int
    by_examples: bool  # clients weigh as they have examples
    weight_decay: float
    decay_in_step: bool
    alpha: float | None  # as the experiment has it, if it is FedCM's


@final
@dataclass(frozen=True)
class Advice:
    alpha: float
    client_lr: float
    variance: float  # V, of a round's mean gradient
    ratio: float | None  # r = V/‖∇f‖²; None where the estimate of ‖∇f‖² is not above 0
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]


def best_of(trials: Iterable[Trial]) -> Trial:
    return min(trials, key=lambda trial: trial.level)


def variations(best: Trial) -> list[tuple[float, float]]:
    """α and η_l to try beside the best α: rates on both sides, the larger also with a client's own step α·η_l kept."""
    slower, faster = rounded(best.client_lr / 3), rounded(best.client_lr * 3)
    return [(best.alpha, slower), (best.alpha, faster), (float(f"{best.alpha / 3:.2g}"), faster)]


def rounded(rate: float) -> float:
    """So that a third of it, three times, is itself.

    >>> rounded(0.1 / 3), rounded(0.1 * 3)
    (0.0333333, 0.3)
    """
    return float(f"{rate:.6g}")


def advise(setting: Setting, seen: Probe) -> Advice:
    won = best_of(seen.trials)
    alpha = at_horizon(won.alpha, seen.rounds, setting.rounds)
    found, square = seen.found, seen.found["gradient_square"]
    variance = estimate_round_variance(
        found["round_noise"], found["dissimilarity"], setting.inverse_cohort, setting.population
    )
    ratio = variance / square if square > 0 else None
    reasons, warnings = _reasons(setting, seen, won, alpha), _warnings(setting, seen, alpha, won.client_lr, ratio)
    return Advice(alpha, won.client_lr, variance, ratio, tuple(reasons), tuple(warnings))


def at_horizon(alpha: float, probed: int, rounds: int) -> float:
    """
    >>> at_horizon(0.3, probed=50, rounds=400), at_horizon(0.3, probed=50, rounds=50)
    (0.075, 0.3)
    """
    falling, least = alpha * min(probed / rounds, 1.0) ** _FALL, min(_FILLINGS / rounds, alpha)
    told = float(f"{max(falling, least):.2g}")
    return told if told >= least else float(f"{1.05 * least:.2g}")


def _reasons(setting: Setting, seen: Probe, won: Trial, alpha: float) -> Iterator[str]:
    yield (
        f"η_l = {won.client_lr:.3g} and, for a run of {seen.rounds} rounds, α = {won.alpha:g}: the least of the losses "
        "above"
    )
    if alpha != won.alpha:
        yield (
            f"α = {alpha:g} for {setting.rounds} rounds: the longer a run, the longer a momentum pays; "
            f"{won.alpha:g} · ({seen.rounds}/{setting.rounds})^⅔, but no less than {_FILLINGS}/{setting.rounds}"
        )
    yield (
        f"there Δ has a cosine of {seen.found['momentum_cosine']:.2f} with the whole gradient ∇f, a client's own "
        f"direction one of {seen.found['direction_cosine']:.2f}"
    )


def _warnings(setting: Setting, seen: Probe, alpha: float, rate: float, ratio: float | None) -> Iterator[str]:
    own = setting.alpha if setting.alpha is not None else alpha
    if setting.alpha is not None and own < min(1.0, _FILLINGS / setting.rounds):
        yield (
            f"the experiment's α = {own:g} remembers {1 / own:.0f} rounds, over a tenth of the run's {setting.rounds}: "
            "the momentum is still filling for much of it"
        )
    yield from _of_local_steps(setting, seen, rate)
    if setting.cohort < min(5, setting.population):
        yield (
            f"few clients a round ({setting.cohort:.2g} on the mean): "
            + (
                "the gradient's square cannot be told from 0"
                if ratio is None
                else f"the variance of a round's mean gradient is {ratio:.2g} times the gradient's square"
            )
            + ", and every figure here is as unsure; other seeds may say other things"
        )
    if setting.empty > 0.01:
        yield f"{setting.empty:.0%} of the rounds have nobody and change nothing; participation.probability is small"
    if setting.decay_in_step and setting.weight_decay > 0:
        told = " and ".join(f"{setting.weight_decay / each:.2g} with α = {each:g}" for each in sorted({alpha, own}))
        yield (
            f"weight decay in the step acts like λ/α, {told}, in place of {setting.weight_decay:g}; "
            'client.weight_decay_at = "loss" keeps it what it says'
        )
    faster = [trial for trial in seen.trials if trial.client_lr > rate]
    if faster and not any(trial.losses for trial in faster):
        yield f"every trial with a larger η_l than {rate:.3g} diverged: it is near the edge; client.clip may help"
    least = min(loss for trial in seen.trials for loss in trial.losses.values())
    if least >= seen.start:
        yield f"no trial has learnt: the least loss is {least:.3g}, before any round it was {seen.start:.3g}"
    if alpha >= 0.5:
        yield "so large an α is nearly FedAvg: over so few rounds, or on so easy a problem, momentum has little to give"


def _of_local_steps(setting: Setting, seen: Probe, rate: float) -> Iterator[str]:
    if seen.smoothness is None:
        yield f"some clients' local steps explode with η_l = {rate:.3g}; fewer steps, a smaller η_l or client.clip help"
    elif (reach := setting.steps * rate * seen.smoothness) > 10:
        yield (
            f"K·η_l·L = {reach:.1f} (L = {seen.smoothness:.2g} along the local steps), far above the theorem's 1/8: "
            f"clients wander off, the mean cosine of their directions with ∇f is {seen.found['direction_cosine']:.2f}; "
            "fewer local steps or a smaller η_l keep them nearer"
        )
    if setting.steps_most > 2 * setting.steps_least:
        yield (
            f"clients take from {setting.steps_least} to {setting.steps_most} local steps, "
            + (
                "so some drift much farther than others"
                if setting.by_examples
                else "and their directions count equally, so a step of a small client counts more"
            )
            + "; client.steps gives all the same number"
        )
