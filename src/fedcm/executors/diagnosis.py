"""Why an algorithm does what it does on these data: drift, momentum and dissimilarity, measured after a round.

At the server's parameters x, with clients' whole gradients g_i = ∇f_i(x) (their own decay and clipping included), as
means over all N clients, each counted once:

    gradient_square  ‖∇f‖², ∇f = mean g_i
    dissimilarity    σ_g² = mean ‖g_i − ∇f‖²
    noise            σ_l² = mean ‖minibatch gradient − g_i‖²        of the next round's minibatches at x
    round_noise      mean ‖mean of these minibatch gradients − g_i‖²
    drift            ε = mean ‖y_i,k − x‖²                          where the next round's gradients are taken
    cosines          of the directions that the server keeps beside x, and of rehearsed clients' mean ones, with ∇f

Where there are more than 1000 clients, 1000 are drawn for the first two; the others are from ten clients and five of
each one's minibatches. All but the cosines are unbiased estimates of the mean over all clients
(`fedcm.executors.estimates`); the cosines are with the sample's mean gradient. The estimate of ‖∇f‖² may be negative,
and `gradient_norm` is 0 then.

Nothing of a rehearsal is kept, and every draw is a function, so a run with diagnoses has the bits of one without. What
is not finite is recorded as None.
"""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from fedcm.core.algorithm import Algorithm, Gradient, LocalRun, Round, Vector
from fedcm.errors import Stopped
from fedcm.executors.client_runner import ClientRunner
from fedcm.executors.client_states import ClientStates
from fedcm.executors.estimates import compute_noise_share, estimate_square_of_mean, estimate_variance
from fedcm.rng import Purpose, make_generator, make_torch_seed
from fedcm.system.threads import one_thread

MOST = 1000  # clients whose whole gradients are taken
REHEARSED = 10  # clients whose local steps are rehearsed
_BATCHES = 5  # minibatches a client for its noise
_NO_DIRECTIONS = {"params", "second_moment"}  # of what servers keep

Found = dict[str, float | None]


@final
@dataclass(frozen=True)
class Diagnosis:
    """What is measured every so many rounds."""

    every: int

    def due(self, index: int) -> bool:
        return (index + 1) % self.every == 0


def diagnose(
    runner: ClientRunner,
    states: ClientStates,
    server: Any,
    next_round: Round,
    most: int = MOST,
    rehearsed: int = REHEARSED,
    stop_requested: Callable[[], bool] = lambda: False,
) -> Found:
    """At the server's state before `next_round`; what it cost is among the numbers."""
    started = time.perf_counter()
    with one_thread(), torch.no_grad(), torch.random.fork_rng(devices=[]):
        clients = _going_on(_drawn(runner.seed, next_round, next_round.population, most), stop_requested)
        whole = _whole_gradients(runner, server.params, clients, next_round.index)
        found = _dissimilarity(whole, next_round.population) | _spread(whole.losses, next_round.population)
        for name, vector in zip(server._fields, server, strict=True):
            if name not in _NO_DIRECTIONS:
                found[f"{name}_norm"] = vector.double().norm().item()
                found[f"{name}_cosine"] = cosine(vector, whole.mean)
        again = _drawn(runner.seed, next_round, next_round.population, rehearsed, again=1)
        found |= _rehearsed(runner, states, server, next_round, whole.mean, _going_on(again, stop_requested))
    told = {name: _plain(value) for name, value in found.items()} | {"clients": len(whole.losses)}
    return told | {"seconds": round(time.perf_counter() - started, 6)}


def _going_on(clients: np.ndarray, stop_requested: Callable[[], bool]) -> Iterator[int]:
    for client in clients.tolist():
        if stop_requested():
            raise Stopped
        yield client


def report_cost(rounds: Iterator[dict[str, Any]], every: int, say: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """The same rounds; what their diagnoses cost is said after the first of them and at the end, if there are any."""
    trained = spent = 0.0
    count = 0
    for done, metrics in enumerate(rounds, start=1):
        trained += metrics["seconds"]
        if "diagnosis" in metrics:
            spent += metrics["diagnosis"]["seconds"]
            count += 1
            if count == 1:
                share = _share(spent / (every * trained / done))
                say(f"a diagnosis takes {spent:.2g} s; at this pace they take {share} the rounds' time")
        yield metrics
    if count:
        told = "1 diagnosis" if count == 1 else f"{count} diagnoses"
        say(f"{told} took {spent:.3g} s, {_share(spent / trained)} the rounds' {trained:.3g} s")


def _share(share: float) -> str:
    """
    >>> _share(0.254), _share(14.1)
    ('25% of', '14 times')
    """
    return f"{share:.0%} of" if share < 2 else f"{share:.2g} times"


@dataclass
class _Whole:
    """Clients' whole gradients: their mean, the mean of their squared norms, and the losses there."""

    mean: Tensor
    square: float
    losses: list[float]


def _whole_gradients(runner: ClientRunner, params: Vector, clients: Iterator[int], index: int) -> _Whole:
    total, square, losses = torch.zeros_like(params, dtype=torch.float64), 0.0, []
    for client in clients:
        _reseed(runner, index, client)
        gradient, loss = runner.problem.full_gradient_and_loss(params, runner.data.client(client))
        total += gradient
        square += _square(gradient)
        losses.append(loss)
    return _Whole(total / len(losses), square / len(losses), losses)


def _reseed(runner: ClientRunner, index: int, client: int) -> None:
    """Whatever chance a model takes, dropout say, is the same for the same client in the same diagnosis."""
    runner.problem.reseed(make_torch_seed(runner.seed, Purpose.DIAGNOSIS, index, client))


def _dissimilarity(whole: _Whole, population: int) -> dict[str, float]:
    """From mean ‖g_i − ḡ‖² = mean ‖g_i‖² − ‖ḡ‖² of the clients looked at."""
    square, sampled = whole.mean.square().sum().item(), len(whole.losses)
    variance = estimate_variance(max(whole.square - square, 0.0), sampled, population)  # rounding may be below 0
    gradient_square = estimate_square_of_mean(square, variance, sampled, population)
    return {
        "gradient_square": gradient_square,
        "gradient_norm": math.sqrt(gradient_square) if not gradient_square < 0 else 0.0,  # NaN stays NaN
        "dissimilarity": variance,
    }


def _spread(losses: list[float], population: int) -> dict[str, float]:
    return {
        "client_loss": float(np.mean(losses)),
        "client_loss_deviation": math.sqrt(estimate_variance(float(np.var(losses)), len(losses), population)),
        "client_loss_least": float(np.min(losses)),
        "client_loss_most": float(np.max(losses)),
    }


def _rehearsed(
    runner: ClientRunner, states: ClientStates, server: Any, round: Round, gradient: Tensor, clients: Iterator[int]
) -> dict[str, float]:
    sent = runner.algorithm.broadcast(server)
    drifts, cosines, noises, round_noises = [], [], [], []
    for client in clients:
        watching = _Watching(runner.algorithm, sent.params)
        replace(runner, algorithm=watching, stack=1).run(client, sent, states.get(client), round)  # pyright: ignore[reportArgumentType]
        drifts.append(watching.drift)
        cosines.append(cosine(watching.direction_taken, gradient))
        noise, share = _noise(runner, server.params, client, round)
        noises.append(noise)
        round_noises.append(noise * share)
    return {
        "drift": float(np.mean(drifts)),
        "direction_cosine": float(np.mean(cosines)),
        "direction_cosine_least": float(np.min(cosines)),
        "noise": float(np.mean(noises)),
        "round_noise": float(np.mean(round_noises)),
    }


def _noise(runner: ClientRunner, params: Vector, client: int, round: Round) -> tuple[float, float]:
    """Of a client's minibatches, with decay and clipping as in its steps: clipped gradients are less noisy. And what
    the mean over its round leaves of it.

    The minibatches are drawn from all of the round, because the last of a pass may be smaller and so noisier.
    """
    data = runner.data.client(client)
    _reseed(runner, round.index, client)
    whole = runner.problem.full_gradient(data)(params).double()
    passes = runner.local_work.passes(data.size)
    drawn = set(_steps_drawn(runner.seed, round, client, sum(map(len, passes))).tolist())
    batches = enumerate(runner.local_work.batches(data, runner.seed, round.index, client))
    gradients = (runner.problem.gradient(batch)(params).double() for step, batch in batches if step in drawn)
    squares = [_square(gradient - whole) for gradient in gradients]
    return float(np.mean(squares)), compute_noise_share(passes, data.size)


@final
class _Watching:
    """An algorithm that is looked at while it takes its local steps."""

    def __init__(self, algorithm: Algorithm[Any, Any, Any, Any], start: Vector) -> None:
        self._algorithm = algorithm
        self._start = start
        self._squares: list[float] = []
        self.direction_taken = start

    def direction(self, gradient: Gradient, params: Vector, sent: Any, kept: Any) -> Vector:
        self._squares.append(_square(params - self._start))
        return self._algorithm.direction(gradient, params, sent, kept)

    def report(self, run: LocalRun, sent: Any, kept: Any) -> tuple[Any, Any]:
        self.direction_taken = run.mean_direction
        return self._algorithm.report(run, sent, kept)

    @property
    def drift(self) -> float:
        return float(np.mean(self._squares))


def cosine(one: Tensor, other: Tensor) -> float:
    """0 where one of them is 0: it points nowhere."""
    one, other = one.double(), other.double()
    norms = one.norm().item() * other.norm().item()
    return (one @ other).item() / norms if norms != 0 else 0.0


def _square(vector: Tensor) -> float:
    return vector.double().square().sum().item()


def _drawn(seed: int, round: Round, population: int, count: int, again: int = 0) -> np.ndarray:
    if population <= count:
        return np.arange(population)
    draw = make_generator(seed, Purpose.DIAGNOSIS, round.index, again)
    return np.sort(draw.choice(population, count, replace=False, shuffle=False))


def _steps_drawn(seed: int, round: Round, client: int, steps: int) -> np.ndarray:
    """The local steps whose minibatches count for a client's noise."""
    if steps <= _BATCHES:
        return np.arange(steps)
    draw = make_generator(seed, Purpose.DIAGNOSIS, round.index, 2 + client)  # 0 and 1 are `_drawn`'s
    return draw.choice(steps, _BATCHES, replace=False, shuffle=False)


def _plain(value: float) -> float | None:
    return float(f"{value:.9g}") if math.isfinite(value) else None
