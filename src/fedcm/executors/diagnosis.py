"""Measure drift, noise, dissimilarity and momentum after a round, to explain how an algorithm behaves on these data.

Each quantity is a mean over all N clients, each counted once, at the server's parameters x. g_i = ∇f_i(x) is the full
gradient of a client, with its weight decay and clipping:

    gradient_square  ‖∇f‖², ∇f = mean g_i
    dissimilarity    σ_g² = mean ‖g_i − ∇f‖²
    noise            σ_l² = mean ‖minibatch gradient − g_i‖²        for the next round's minibatches, at x
    round_noise      mean ‖mean of these minibatch gradients − g_i‖²
    drift            ε = mean ‖y_i,k − x‖²                          over the local steps of the next round
    cosines          with ∇f: of the other vectors of the server state, and of clients' mean directions

The first two use at most 1000 clients, drawn at random. The others use ten clients and five minibatches of each. All
but the cosines are unbiased estimates of the mean over all clients (`fedcm.executors.estimates`); the cosines are with
the mean gradient of the sample. The estimate of ‖∇f‖² may be negative; `gradient_norm` is 0 then.

A diagnosis changes no state, and every draw is a function of the seed and the round, so a run with diagnoses has the
same bits as one without. A value that is not finite is recorded as None.
"""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from fedcm.core.algorithm import Algorithm, Gradient, LocalRun, Round, Step, Vector
from fedcm.errors import Stopped
from fedcm.executors.client_runner import ClientRunner
from fedcm.executors.client_states import ClientStates
from fedcm.executors.estimates import compute_noise_share, estimate_square_of_mean, estimate_variance
from fedcm.rng import Purpose, make_generator, make_torch_seed
from fedcm.system.callbacks import StopRequested
from fedcm.system.hardware import use_one_thread

MAX_GRADIENTS = 1000  # clients whose full gradients are computed
MAX_LOCAL_RUNS = 10  # clients whose local steps are run
_BATCHES = 5  # minibatches per client for its noise
_NO_DIRECTIONS = {"params", "second_moment", "accumulator", "anchor", "mean", "iterate"}  # fields of server states

DiagnosisValues = dict[str, float | None]


def diagnose(
    runner: ClientRunner,
    states: ClientStates,
    server: Any,
    next_round: Round,
    max_gradients: int = MAX_GRADIENTS,
    max_local_runs: int = MAX_LOCAL_RUNS,
    stop_requested: StopRequested = lambda: False,
) -> DiagnosisValues:
    """Measure the quantities of this module at the server state before `next_round`.

    Args:
        max_gradients: The largest number of clients whose full gradients are computed.
        max_local_runs: The largest number of clients whose local steps are run.
        stop_requested: Called before each client; `Stopped` is raised when it returns True.

    Returns:
        The values by name, with the number of clients and the seconds that the diagnosis took.
    """
    started = time.perf_counter()
    with use_one_thread(), torch.no_grad(), torch.random.fork_rng(devices=[]):
        clients = _draw_clients(runner.seed, next_round, max_gradients)
        full = _compute_full_gradients(
            runner, server.params, _iterate_until_stopped(clients, stop_requested), next_round.index
        )
        values = _estimate_dissimilarity(full, next_round.population)
        values |= _describe_losses(full.losses, next_round.population)
        for name, vector in zip(server._fields, server, strict=True):
            if name not in _NO_DIRECTIONS and vector.shape == server.params.shape:
                values[f"{name}_norm"] = vector.double().norm().item()
                values[f"{name}_cosine"] = compute_cosine(vector, full.mean)
        clients = _draw_clients(runner.seed, next_round, max_local_runs, draw=1)
        values |= _measure_local_runs(
            runner, states, server, next_round, full.mean, _iterate_until_stopped(clients, stop_requested)
        )
    rounded = {name: _round_value(value) for name, value in values.items()} | {"clients": len(full.losses)}
    return rounded | {"seconds": round(time.perf_counter() - started, 6)}


def _iterate_until_stopped(clients: np.ndarray, stop_requested: StopRequested) -> Iterator[int]:
    for client in clients.tolist():
        if stop_requested():
            raise Stopped
        yield client


@dataclass
class _FullGradients:
    """The full gradients of some clients."""

    mean: Tensor
    square: float  # mean of the squared norms
    losses: list[float]


def _compute_full_gradients(runner: ClientRunner, params: Vector, clients: Iterator[int], index: int) -> _FullGradients:
    total, square, losses = torch.zeros_like(params, dtype=torch.float64), 0.0, []
    for client in clients:
        _reseed(runner, index, client)
        gradient, loss = runner.problem.full_gradient_and_loss(params, runner.data.client(client))
        total += gradient
        square += _compute_square(gradient)
        losses.append(loss)
    return _FullGradients(total / len(losses), square / len(losses), losses)


def _reseed(runner: ClientRunner, index: int, client: int) -> None:
    """Make random numbers of the model, such as dropout, a function of the diagnosis and the client."""
    runner.problem.reseed(make_torch_seed(runner.seed, Purpose.DIAGNOSIS, index, client))


def _estimate_dissimilarity(full: _FullGradients, population: int) -> dict[str, float]:
    """Use mean ‖g_i − ḡ‖² = mean ‖g_i‖² − ‖ḡ‖² of the sample."""
    square, sampled = full.mean.square().sum().item(), len(full.losses)
    variance = estimate_variance(max(full.square - square, 0.0), sampled, population)  # rounding may give less than 0
    gradient_square = estimate_square_of_mean(square, variance, sampled, population)
    return {
        "gradient_square": gradient_square,
        "gradient_norm": math.sqrt(gradient_square) if not gradient_square < 0 else 0.0,  # NaN stays NaN
        "dissimilarity": variance,
    }


def _describe_losses(losses: list[float], population: int) -> dict[str, float]:
    return {
        "client_loss": float(np.mean(losses)),
        "client_loss_deviation": math.sqrt(estimate_variance(float(np.var(losses)), len(losses), population)),
        "client_loss_least": float(np.min(losses)),
        "client_loss_most": float(np.max(losses)),
    }


def _measure_local_runs(
    runner: ClientRunner, states: ClientStates, server: Any, round: Round, gradient: Tensor, clients: Iterator[int]
) -> dict[str, float]:
    sent = runner.algorithm.broadcast(server)
    drifts, cosines, noises, round_noises = [], [], [], []
    for client in clients:
        observed = _ObservedAlgorithm(runner.algorithm, sent.params)
        observed_runner = replace(runner, algorithm=observed, stack=1)  # pyright: ignore[reportArgumentType]
        observed_runner.run_client(client, sent, states.get(client), round)
        drifts.append(observed.drift)
        cosines.append(compute_cosine(observed.mean_direction, gradient))
        noise, share = _measure_noise(runner, server.params, client, round)
        noises.append(noise)
        round_noises.append(noise * share)
    return {
        "drift": float(np.mean(drifts)),
        "direction_cosine": float(np.mean(cosines)),
        "direction_cosine_least": float(np.min(cosines)),
        "noise": float(np.mean(noises)),
        "round_noise": float(np.mean(round_noises)),
    }


def _measure_noise(runner: ClientRunner, params: Vector, client: int, round: Round) -> tuple[float, float]:
    """Return the noise of a client's minibatches, and the share of it that is left in the mean over its round.

    Gradients have weight decay and clipping as in the local steps, because clipping reduces the noise. The minibatches
    are drawn from the whole round, because the last one of a pass may be smaller and so noisier.
    """
    data = runner.data.client(client)
    _reseed(runner, round.index, client)
    full = runner.problem.full_gradient(data)(params).double()
    steps = runner.local_work.count_steps(data.size, runner.seed, round.index, client)
    chosen = set(_draw_steps(runner.seed, round, client, steps).tolist())
    batches = enumerate(runner.draw_batches(data, round.index, client))
    gradients = (runner.problem.gradient(batch)(params).double() for step, batch in batches if step in chosen)
    squares = [_compute_square(gradient - full) for gradient in gradients]
    return float(np.mean(squares)), compute_noise_share(runner.local_work.list_batch_sizes(data.size, steps), data.size)


@final
class _ObservedAlgorithm:
    """An algorithm that records the drift and the mean direction of its local steps."""

    def __init__(self, algorithm: Algorithm[Any, Any, Any, Any], start: Vector) -> None:
        self._algorithm = algorithm
        self._start = start
        self._squares: list[float] = []
        self.mean_direction = start

    def start(self, sent: Any, kept: Any) -> Vector:
        return self._algorithm.start(sent, kept)

    def init_local(self, full_gradient: Gradient, sent: Any, kept: Any) -> Any:
        return self._algorithm.init_local(full_gradient, sent, kept)

    def step(
        self, gradient: Gradient, params: Vector, sent: Any, kept: Any, local: Any, step: Step
    ) -> tuple[Vector, Any]:
        self._squares.append(_compute_square(params - self._start))
        return self._algorithm.step(gradient, params, sent, kept, local, step)

    def report(self, run: LocalRun, sent: Any, kept: Any) -> tuple[Any, Any]:
        self.mean_direction = run.mean_direction
        return self._algorithm.report(run, sent, kept)

    @property
    def drift(self) -> float:
        return float(np.mean(self._squares))


def compute_cosine(one: Tensor, other: Tensor) -> float:
    """Return the cosine of the angle between two vectors; 0 if one of them is 0."""
    one, other = one.double(), other.double()
    norms = one.norm().item() * other.norm().item()
    return (one @ other).item() / norms if norms != 0 else 0.0


def _compute_square(vector: Tensor) -> float:
    return vector.double().square().sum().item()


def _draw_clients(seed: int, round: Round, count: int, draw: int = 0) -> np.ndarray:
    if round.population <= count:
        return np.arange(round.population)
    generator = make_generator(seed, Purpose.DIAGNOSIS, round.index, draw)
    return np.sort(generator.choice(round.population, count, replace=False, shuffle=False))


def _draw_steps(seed: int, round: Round, client: int, steps: int) -> np.ndarray:
    """Draw the local steps whose minibatches are used for a client's noise."""
    if steps <= _BATCHES:
        return np.arange(steps)
    generator = make_generator(seed, Purpose.DIAGNOSIS, round.index, 2 + client)  # `_draw_clients` uses 0 and 1
    return generator.choice(steps, _BATCHES, replace=False, shuffle=False)


def _round_value(value: float) -> float | None:
    return float(f"{value:.9g}") if math.isfinite(value) else None
