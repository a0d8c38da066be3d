"""α and η_l for FedCM on these data, from what a probe (`fedcm.probing`) saw: a pure function of it.

A trial of the probe is FedCM with one α and one η_l for a few rounds. Its loss over clients is taken to fall like a
power of the round, c·t^−b, fitted over the last two thirds of the trial; c·T^−b is the loss foreseen for the end of the
run, and the least wins. So an α whose momentum is still filling, but whose loss falls faster, can win over one that is
ahead.

An α whose memory of 1/α rounds is long for the probe cannot be tried. Where the smallest wins, the suggestion goes on
from it half the way (of its logarithm) to 15/T, below which a run is too short to fill the momentum: a rule of thumb.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np

ALPHAS = (1.0, 0.4, 0.2, 0.1)  # tried at the experiment's η_l
FACTORS = (1 / 3, 3.0)  # of that η_l, tried with the best of them
_FILLINGS = 15  # how often a momentum should have filled by the end


class Trial(NamedTuple):
    alpha: float
    client_lr: float
    losses: dict[int, float]  # after so many rounds; none where it diverged

    def power_law(self) -> tuple[float, float]:
        """c and b of c·t^−b, by least squares on log-log axes."""
        times, losses = np.log(list(self.losses)), np.log(np.maximum(list(self.losses.values()), 1e-12))
        slope = np.polyfit(times, losses, 1)[0] if len(times) > 1 else 0.0
        return math.exp(losses.mean() - slope * times.mean()), -slope

    def foreseen(self, rounds: int) -> float:
        if not self.losses:
            return math.inf
        scale, exponent = self.power_law()
        return float(scale * rounds**-exponent)


class Probe(NamedTuple):
    start: float  # the loss before any round
    trials: tuple[Trial, ...]
    found: dict[str, float]  # a diagnosis at the end of the trial that won
    smoothness: float  # L along its local steps


class Setting(NamedTuple):
    """What the experiment says, in the theorem's letters."""

    rounds: int  # T
    population: int  # N
    cohort: float  # S, its mean
    empty: float  # the share of rounds without anybody
    steps: float  # K, its mean
    steps_least: int
    steps_most: int
    weight_decay: float
    decay_in_step: bool
    alpha: float | None  # as the experiment has it, if it is FedCM's


@final
@dataclass(frozen=True)
class Advice:
    alpha: float
    client_lr: float
    ratio: float  # r = V/‖∇f‖²
    variance: float  # V
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]


def most_promising(trials: Iterable[Trial], rounds: int) -> Trial:
    return min(trials, key=lambda trial: trial.foreseen(rounds))


def advise(setting: Setting, seen: Probe) -> Advice:
    won = most_promising(seen.trials, setting.rounds)
    alpha = beyond(won.alpha, setting.rounds)
    variance = round_variance(seen.found["noise"], seen.found["dissimilarity"], setting)
    ratio = variance / max(seen.found["gradient_norm"] ** 2, 1e-300)
    reasons, warnings = _reasons(setting, seen, won, alpha), _warnings(setting, seen, alpha, won.client_lr, ratio)
    return Advice(alpha, won.client_lr, ratio, variance, tuple(reasons), tuple(warnings))


def beyond(alpha: float, rounds: int) -> float:
    """
    >>> beyond(0.1, rounds=150), beyond(0.1, rounds=500), beyond(0.4, rounds=4000)
    (0.1, 0.055, 0.4)
    """
    if alpha > min(ALPHAS):
        return alpha
    return float(f"{math.sqrt(alpha * min(_FILLINGS / rounds, alpha)):.2g}")


def round_variance(noise: float, dissimilarity: float, setting: Setting) -> float:
    """Of a round's mean gradient, without drift: V = σ_l²/(K·S) + (1 − S/N)·σ_g²/S."""
    cohort = max(setting.cohort, 1.0)
    return noise / (setting.steps * cohort) + max(1 - cohort / setting.population, 0.0) * dissimilarity / cohort


def _reasons(setting: Setting, seen: Probe, won: Trial, alpha: float) -> Iterator[str]:
    rounds = setting.rounds
    told = f"{won.foreseen(rounds):.3g} is the least loss foreseen after {rounds} rounds: α = {won.alpha:g} with "
    told += f"η_l = {won.client_lr:.3g}"
    at_rate = [trial for trial in seen.trials if trial.losses and trial.client_lr == won.client_lr and trial != won]
    with_alpha = [trial for trial in seen.trials if trial.losses and trial.alpha == won.alpha and trial != won]
    if at_rate:
        told += "; other α: " + ", ".join(f"{trial.foreseen(rounds):.3g} with {trial.alpha:g}" for trial in at_rate)
    if with_alpha:
        told += "; other η_l: "
        told += ", ".join(f"{trial.foreseen(rounds):.3g} with {trial.client_lr:.3g}" for trial in with_alpha)
    yield told
    if alpha < won.alpha:
        yield (
            f"α = {alpha:g}, between that and {_FILLINGS}/T = {_FILLINGS / rounds:.2g}: the smallest α that the probe "
            f"could try won, and {rounds} rounds have room for a longer memory"
        )
    yield (
        f"there Δ has a cosine of {seen.found['momentum_cosine']:.2f} with the whole gradient ∇f, a client's own "
        f"direction one of {seen.found['direction_cosine']:.2f}"
    )


def _warnings(setting: Setting, seen: Probe, alpha: float, rate: float, ratio: float) -> Iterator[str]:
    own = setting.alpha if setting.alpha is not None else alpha
    if 1 / own > setting.rounds / 10:
        yield (
            f"α = {own:g} remembers {1 / own:.0f} rounds, over a tenth of the run's {setting.rounds}: the momentum "
            "is still filling for much of it"
        )
    reach = setting.steps * rate * seen.smoothness
    if reach > 10:
        yield (
            f"K·η_l·L = {reach:.1f} (L = {seen.smoothness:.2g} along the local steps), far above the theorem's 1/8: "
            f"clients wander off, the mean cosine of their directions with ∇f is {seen.found['direction_cosine']:.2f}; "
            "fewer local steps or a smaller η_l keep them nearer"
        )
    if setting.steps_most > 2 * setting.steps_least:
        yield (
            f"clients take from {setting.steps_least} to {setting.steps_most} local steps and their directions count "
            "equally, so a step of a small client counts more; client.steps gives all the same number"
        )
    if setting.cohort < 5:
        yield (
            f"{setting.cohort:.2g} clients a round are few: the variance of a round's mean gradient is {ratio:.2g} "
            "times the gradient's square, and every figure here is as unsure; other seeds may say other things"
        )
    if setting.empty > 0.01:
        yield f"{setting.empty:.0%} of the rounds have nobody and change nothing; participation.probability is small"
    if setting.decay_in_step and setting.weight_decay > 0:
        yield (
            f"weight decay in the step acts like λ/α = {setting.weight_decay / own:.2g} in place of "
            f'{setting.weight_decay:g}; client.weight_decay_at = "loss" keeps it what it says'
        )
    faster = [trial for trial in seen.trials if trial.client_lr > rate]
    if faster and not any(trial.losses for trial in faster):
        yield f"every trial with a larger η_l than {rate:.3g} diverged: it is near the edge; client.clip may help"
    least = min(loss for trial in seen.trials for loss in trial.losses.values())
    if least >= seen.start:
        yield f"no trial has learnt: the least loss is {least:.3g}, before any round it was {seen.start:.3g}"
    if alpha >= 0.5:
        yield "so large an α is nearly FedAvg: over so few rounds, or on so easy a problem, momentum has little to give"
