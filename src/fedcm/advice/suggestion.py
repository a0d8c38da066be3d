"""Suggest α and η_l of FedCM from the result of a probe (`fedcm.advice.probe`): pure functions.

A trial of the probe is FedCM with one α and one η_l for P rounds. The trial with the least loss in the second half of
its rounds wins. The loss is on the validation data if there are any, else on the clients' training data. The η_l of the
best trial is the suggestion. Its α is the best for a run of P rounds. The best α falls with the number of rounds T,
because the momentum takes 1/α rounds to fill and helps only afterwards. The suggestion is

    α · (P/T)^⅔,        but at least 10/T

The exponent is a rule of thumb, from sweeps on CIFAR-10 (docs/guides/diagnosis.md).
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple, final

import numpy as np

from fedcm.executors.estimates import estimate_round_variance
from fedcm.system.formatting import format_count

ALPHAS = (1.0, 0.3, 0.1)  # tried at the experiment's η_l
_EXPONENT = 2 / 3  # with which α falls with the number of rounds
_FILLINGS = 10  # how often the momentum should fill during a run


class Trial(NamedTuple):
    """A short run of FedCM with one α and one η_l."""

    alpha: float
    client_lr: float
    losses: dict[int, float]  # by the number of rounds done, in the second half; empty if the trial diverged

    @property
    def level(self) -> float:
        """The geometric mean of the losses, which averages over the rounds' cohorts; infinite if it diverged."""
        if not self.losses:
            return math.inf
        return float(np.exp(np.mean(np.log(np.maximum(list(self.losses.values()), 1e-12)))))


class ProbeResult(NamedTuple):
    """The result of a probe."""

    rounds: int  # P, of each trial
    start: float  # the loss before the first round
    trials: tuple[Trial, ...]
    diagnosis: dict[str, float]  # at the end of the best trial
    smoothness: float | None  # L along its local steps; None if they explode
    judged_on: Literal["training", "validation"] = "training"  # the data of the losses

    def to_table(self) -> dict[str, Any]:
        """Return the result for JSON. The level of a trial that diverged is None."""
        trials = [
            trial._asdict() | {"level": trial.level if math.isfinite(trial.level) else None} for trial in self.trials
        ]
        table = self._asdict() | {"trials": trials}
        return {"found" if name == "diagnosis" else name: value for name, value in table.items()}


class ExperimentProfile(NamedTuple):
    """The properties of an experiment that the advice depends on, with the theorem's letters."""

    rounds: int  # T
    population: int  # N
    cohort_size: float  # mean of S
    inverse_cohort: float  # mean of 1/S over the rounds with a non-empty cohort
    empty: float  # share of rounds with an empty cohort
    steps: float  # mean of K, or of Σ f_k with client.step_schedule
    steps_least: int
    steps_most: int
    by_examples: bool  # whether clients are weighed by their examples
    weight_decay: float
    decay_in_step: bool
    alpha: float | None  # the experiment's own, if its algorithm is FedCM

    def to_table(self) -> dict[str, Any]:
        """Return the properties for JSON."""
        return {"cohort" if name == "cohort_size" else name: value for name, value in self._asdict().items()}


@final
@dataclass(frozen=True)
class Advice:
    """The suggested α and η_l, and why.

    Attributes:
        alpha: The suggested α.
        client_lr: The suggested η_l.
        variance: V, the variance of a round's mean gradient.
        ratio: r = V/‖∇f‖²; None if the estimate of ‖∇f‖² is not above 0.
        reasons: Why these values are suggested, in sentences.
        warnings: Risks of the experiment, in sentences.
        profile: The properties of the experiment that the advice depends on.
        probe: The result of the probe.
    """

    alpha: float
    client_lr: float
    variance: float
    ratio: float | None
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]
    profile: ExperimentProfile
    probe: ProbeResult

    def to_table(self) -> dict[str, Any]:
        """Return the advice for JSON."""
        table = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "profile"}
        return table | {"setting": self.profile.to_table(), "probe": self.probe.to_table()}


def find_best_trial(trials: Iterable[Trial]) -> Trial:
    """Return the trial with the least loss."""
    return min(trials, key=lambda trial: trial.level)


def list_further_pairs(best: Trial) -> list[tuple[float, float]]:
    """Return more pairs (α, η_l) to try: smaller and larger η_l, the larger one also with the step α·η_l unchanged."""
    slower, faster = round_rate(best.client_lr / 3), round_rate(best.client_lr * 3)
    return [(best.alpha, slower), (best.alpha, faster), (float(f"{best.alpha / 3:.2g}"), faster)]


def round_rate(rate: float) -> float:
    """Round a learning rate so that a third of it, times three, is the rate itself.

    >>> round_rate(0.1 / 3), round_rate(0.1 * 3)
    (0.0333333, 0.3)
    """
    return float(f"{rate:.6g}")


def suggest_settings(profile: ExperimentProfile, probe: ProbeResult) -> Advice:
    """Return the advice for an experiment, given the result of its probe."""
    best = find_best_trial(probe.trials)
    alpha = scale_alpha(best.alpha, probe.rounds, profile.rounds)
    diagnosis, square = probe.diagnosis, probe.diagnosis["gradient_square"]
    variance = estimate_round_variance(
        diagnosis["round_noise"], diagnosis["dissimilarity"], profile.inverse_cohort, profile.population
    )
    ratio = variance / square if square > 0 else None
    reasons = _list_reasons(profile, probe, best, alpha)
    warnings = _list_warnings(profile, probe, alpha, best.client_lr, ratio)
    return Advice(alpha, best.client_lr, variance, ratio, tuple(reasons), tuple(warnings), profile, probe)


def scale_alpha(alpha: float, probe_rounds: int, rounds: int) -> float:
    """Scale the best α of a probe with `probe_rounds` rounds per trial to a run of `rounds` rounds.

    >>> scale_alpha(0.3, probe_rounds=50, rounds=400), scale_alpha(0.3, probe_rounds=50, rounds=50)
    (0.075, 0.3)
    """
    scaled, least = alpha * min(probe_rounds / rounds, 1.0) ** _EXPONENT, min(_FILLINGS / rounds, alpha)
    rounded = float(f"{max(scaled, least):.2g}")
    return rounded if rounded >= least else float(f"{1.05 * least:.2g}")


def _list_reasons(profile: ExperimentProfile, probe: ProbeResult, best: Trial, alpha: float) -> Iterator[str]:
    yield (
        f"η_l = {best.client_lr:.3g} and α = {best.alpha:g} for a run of {format_count(probe.rounds, 'round')}: "
        f"the trial with the least {probe.judged_on} loss"
    )
    if alpha != best.alpha:
        yield (
            f"α = {alpha:g} for {format_count(profile.rounds, 'round')}, because a smaller α pays in a longer run: "
            f"{best.alpha:g} · ({probe.rounds}/{profile.rounds})^⅔, but at least {_FILLINGS}/{profile.rounds}"
        )
    yield (
        "at the end of that trial, the cosine with the full gradient ∇f is "
        f"{probe.diagnosis['momentum_cosine']:.2f} for Δ and {probe.diagnosis['direction_cosine']:.2f} for the "
        "direction of a client"
    )


def _list_warnings(
    profile: ExperimentProfile, probe: ProbeResult, alpha: float, rate: float, ratio: float | None
) -> Iterator[str]:
    own_alpha = profile.alpha if profile.alpha is not None else alpha
    if profile.alpha is not None and own_alpha < min(1.0, _FILLINGS / profile.rounds):
        yield (
            f"the experiment's α = {own_alpha:g} averages over {1 / own_alpha:.0f} rounds, more than a tenth of the "
            f"run's {profile.rounds}: the momentum fills for a large part of the run"
        )
    yield from _warn_of_local_steps(profile, probe, rate)
    if profile.cohort_size < min(5, profile.population):
        yield (
            f"few clients per round ({profile.cohort_size:.2g} on average): "
            + (
                "the gradient's square cannot be distinguished from 0"
                if ratio is None
                else f"the variance of a round's mean gradient is {ratio:.2g} times the gradient's square"
            )
            + ", so all these figures are uncertain; another seed may give others"
        )
    if profile.empty > 0.01:
        yield (
            f"{profile.empty:.0%} of the rounds have an empty cohort and change nothing; "
            "raise participation.probability"
        )
    if profile.decay_in_step and profile.weight_decay > 0:
        effective = " and ".join(
            f"{profile.weight_decay / each:.2g} with α = {each:g}" for each in sorted({alpha, own_alpha})
        )
        yield (
            f"weight decay in the step acts like λ/α, {effective}, instead of {profile.weight_decay:g}; "
            'set client.weight_decay_at = "loss" to avoid this'
        )
    faster = [trial for trial in probe.trials if trial.client_lr > rate]
    if faster and not any(trial.losses for trial in faster):
        yield f"every trial with η_l above {rate:.3g} diverged: this rate is close to the limit; client.clip may help"
    least = min(loss for trial in probe.trials for loss in trial.losses.values())
    if least >= probe.start:
        yield (
            f"no trial reduced the {probe.judged_on} loss: it was {probe.start:.3g} before the first round, then at "
            f"least {least:.3g}"
        )
    if alpha >= 0.5:
        yield (
            f"α = {alpha:g} is nearly FedAvg: the run has too few rounds, or the problem is too easy, to gain from "
            "momentum"
        )


def _warn_of_local_steps(profile: ExperimentProfile, probe: ProbeResult, rate: float) -> Iterator[str]:
    if probe.smoothness is None:
        yield (
            f"the local steps of some clients explode with η_l = {rate:.3g}; take fewer steps or a smaller η_l, or set "
            "client.clip"
        )
    elif (reach := profile.steps * rate * probe.smoothness) > 10:
        yield (
            f"K·η_l·L = {reach:.1f} (L = {probe.smoothness:.2g} along the local steps), far above the theorem's 1/8: "
            "clients drift, and the mean cosine of their directions with ∇f is "
            f"{probe.diagnosis['direction_cosine']:.2f}; fewer local steps or a smaller η_l reduce the drift"
        )
    if profile.steps_most > 2 * profile.steps_least:
        yield (
            f"clients take from {profile.steps_least} to {profile.steps_most} local steps, "
            + (
                "so some drift much farther than others"
                if profile.by_examples
                else "and their directions count equally, so a step of a small client counts more"
            )
            + "; client.steps gives all clients the same number"
        )
