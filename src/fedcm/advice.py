"""α and η_l for FedCM on these data, suggested from a short probe: what was measured, what follows, what to beware of.

FedCM's momentum Δ is a mean over about 1/α rounds. It starts at 0, so filling it costs 1/α of T rounds; and a round's
mean gradient has the variance V about ∇f, of which α/(2 − α) stays in Δ. With r = V/‖∇f‖² the sum of both,

    1/(αT) + r·α/2,        is least at        α = √(2 / (r·T)),
    V = σ_l²/(K·S) + (1 − S/N)·σ_g²/S

(the variance of the theorem's mean gradient, without drift). ∇f, σ_l and σ_g are measured after a few rounds of FedCM
with α = 1, which is FedAvg. η_l is the one of three that lowers the loss over clients most in those rounds. A rule of
thumb, not a theorem.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, final

import numpy as np
import torch

from fedcm.algorithm import Round, Vector
from fedcm.algorithms.fedcm import FedCM
from fedcm.assembly import Assembly
from fedcm.diagnosis import diagnose
from fedcm.evaluate import Score
from fedcm.executors.executor import Diverged
from fedcm.executors.local import LocalExecutor
from fedcm.executors.runner import ClientRunner
from fedcm.experiment import Experiment
from fedcm.schedule import Schedule
from fedcm.threads import one_thread
from fedcm.training import training

FACTORS = (1 / 3, 1.0, 3.0)  # of the experiment's η_l
CLIENTS = 100  # whose gradients and losses are measured
_SMOOTHNESS = 5  # clients for the smoothness
_LEAST, _MOST = 0.01, 1.0  # α
_NEAR = 0.02  # relative: of two rates as good as each other the larger is taken, which FedCM needs more

Passing = Callable[[str, int, int], None]


class Probe(NamedTuple):
    """What a few rounds of FedAvg showed."""

    losses: dict[float, float]  # η_l -> loss over all clients afterwards; infinite where it diverged
    found: dict[str, float]  # a diagnosis, at the experiment's η_l
    smoothness: float  # along the local steps


class Setting(NamedTuple):
    """What the experiment says, in the theorem's letters."""

    rounds: int  # T
    population: int  # N
    cohort: float  # S, its mean
    empty: float  # the share of rounds without anybody
    steps: float  # K, its mean
    steps_least: int
    steps_most: int
    client_lr: float  # η_l of the first round
    weight_decay: float
    decay_in_step: bool
    alpha: float | None  # as the experiment has it


@final
@dataclass(frozen=True)
class Advice:
    alpha: float
    client_lr: float
    ratio: float  # r
    variance: float  # V
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]


def setting_of(assembly: Assembly) -> Setting:
    plan, client, runner = assembly.plan, assembly.experiment.client, assembly.runner
    sizes = [
        len(plan.participation.cohort(plan.population, plan.seed, index)) for index in range(min(plan.rounds, 500))
    ]
    steps = runner.steps(np.arange(min(plan.population, 10_000)))
    return Setting(
        rounds=plan.rounds,
        population=plan.population,
        cohort=float(np.mean(sizes)),
        empty=float(np.mean([size == 0 for size in sizes])),
        steps=float(steps.mean()),
        steps_least=int(steps.min()),
        steps_most=int(steps.max()),
        client_lr=client.lr,
        weight_decay=client.weight_decay,
        decay_in_step=client.weight_decay_at == "step",
        alpha=getattr(assembly.experiment.algorithm, "alpha", None) if _is_fedcm(assembly.experiment) else None,
    )


def probe(assembly: Assembly, rounds: int, passing: Passing = lambda what, done, all: None) -> Probe:
    """FedCM with α = 1 for so many rounds at each of three rates, from the same start and with the same cohorts."""
    lr = assembly.experiment.client.lr
    losses, found, smoothness = {}, {}, math.nan
    for place, factor in enumerate(FACTORS):
        rate = lr * factor
        try:
            server = _trained(
                assembly, rate, rounds, lambda done, place=place: passing("probe", place * rounds + done, 3 * rounds)
            )
            here = _measured(assembly, server, rate, rounds)
        except Diverged:
            losses[rate] = math.inf
            continue
        losses[rate] = here["client_loss"]
        if factor == 1.0 or not found:
            found = here
            smoothness = _smoothness(_as_fedavg(assembly.runner), server.params, rate, rounds)
    if not found:
        raise Diverged(
            f"training diverged within {rounds} rounds at every rate from {lr * FACTORS[0]:g} to {lr * FACTORS[-1]:g}"
        )
    return Probe(losses, found, smoothness)


def advise(setting: Setting, seen: Probe) -> Advice:
    """What follows from a probe: a pure function of it."""
    variance = round_variance(seen.found["noise"], seen.found["dissimilarity"], setting)
    ratio = variance / max(seen.found["gradient_norm"] ** 2, 1e-300)
    alpha = best_alpha(ratio, setting.rounds)
    best = min(seen.losses.values())
    rate = max(rate for rate, loss in seen.losses.items() if loss <= best + _NEAR * abs(best))
    reasons = (
        f"α = {alpha:.2g}: a round's mean gradient has {ratio:.2g} times the square of ‖∇f‖ as variance "
        f"({setting.cohort:.3g} of {setting.population} clients, {setting.steps:.3g} steps), and √(2 / ({ratio:.2g} · "
        f"{setting.rounds})) balances it against the 1/α rounds that the momentum takes to fill",
        f"η_l = {rate:g}: after the probe the loss over clients was "
        + ", ".join(f"{loss:.3f} with {tried:.3g}" for tried, loss in sorted(seen.losses.items())),
    )
    return Advice(alpha, rate, ratio, variance, reasons, tuple(_warnings(setting, seen, alpha, rate)))


def round_variance(noise: float, dissimilarity: float, setting: Setting) -> float:
    """V = σ_l²/(K·S) + (1 − S/N)·σ_g²/S."""
    cohort = max(setting.cohort, 1.0)
    return noise / (setting.steps * cohort) + max(1 - cohort / setting.population, 0.0) * dissimilarity / cohort


def best_alpha(ratio: float, rounds: int) -> float:
    """
    >>> best_alpha(ratio=1.0, rounds=200)
    0.1
    """
    free = math.sqrt(2 / (max(ratio, 1e-12) * rounds))
    return float(f"{min(max(free, _LEAST), _MOST):.2g}")


def _warnings(setting: Setting, seen: Probe, alpha: float, rate: float) -> Iterator[str]:
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
        yield f"{setting.cohort:.2g} clients a round are few: rounds differ much, and α should rather be smaller"
    if setting.empty > 0.01:
        yield f"{setting.empty:.0%} of the rounds have nobody and change nothing; participation.probability is small"
    if setting.decay_in_step and setting.weight_decay > 0:
        yield (
            f"weight decay in the step acts like λ/α = {setting.weight_decay / own:.2g} in place of "
            f'{setting.weight_decay:g}; client.weight_decay_at = "loss" keeps it what it says'
        )
    if alpha >= 0.5:
        yield "so large an α is nearly FedAvg: over so few or so quiet rounds momentum has little to give"


class _Untested:
    """An executor that trains and evaluates nothing."""

    def __init__(self, executor: LocalExecutor) -> None:
        self.run_round = executor.run_round

    def evaluate(self, params: Vector) -> Score | None:
        return None


def _as_fedavg(runner: ClientRunner) -> ClientRunner:
    return replace(runner, algorithm=FedCM(alpha=1.0))


def _trained(assembly: Assembly, rate: float, rounds: int, passing: Callable[[int], None]) -> Any:
    runner, client = _as_fedavg(assembly.runner), assembly.experiment.client
    schedule = Schedule(rate, client.lr_decay, assembly.experiment.server.lr)
    plan = replace(assembly.plan, schedule=schedule, rounds=rounds)
    server = runner.algorithm.init_server(assembly.problem.initial())
    for done in training(runner.algorithm, _Untested(LocalExecutor(runner)), plan, server):
        server = done.server
        passing(done.index + 1)
    return server


def _measured(assembly: Assembly, server: Any, rate: float, rounds: int) -> dict[str, float]:
    executor, plan = LocalExecutor(_as_fedavg(assembly.runner)), assembly.plan
    round = Round(rounds, rate, 1.0, 0, plan.population, math.nan)
    found = diagnose(executor.runner, executor.states, server, round, most=CLIENTS)
    if not math.isfinite(found["client_loss"]):
        raise Diverged("the loss over clients is not finite")
    return found


def _smoothness(runner: ClientRunner, params: Vector, rate: float, index: int) -> float:
    """‖g_i(y) − g_i(x)‖ / ‖y − x‖ from the start to the end of local steps; the median of a few clients."""
    sent = runner.algorithm.broadcast(runner.algorithm.init_server(params))
    round, ratios = Round(index, rate, 1.0, 0, runner.data.population, math.nan), []
    with one_thread(), torch.no_grad(), torch.random.fork_rng(devices=[]):
        for client in range(min(_SMOOTHNESS, runner.data.population)):
            done = runner.run(client, sent, runner.algorithm.init_client(params), round)
            report: Any = done.report
            moved = report.direction * (rate * done.steps)
            at = runner.problem.full_gradient(runner.data.client(client))
            ratios.append(((at(params - moved) - at(params)).norm() / moved.norm().clamp(min=1e-30)).item())
    return float(np.median(ratios))


def _is_fedcm(experiment: Experiment) -> bool:
    return isinstance(experiment.algorithm, FedCM)
