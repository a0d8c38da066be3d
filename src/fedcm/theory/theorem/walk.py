"""Rounds of any algorithm on a known problem, for many replicates and step sizes at once, in float64.

This is the theory's own harness: the algorithms are the project's objects, but `client.py` steps torch models through
minibatches, one client at a time, and thousands of rounds of hundreds of replicates would take it hours. The two agree
on the same problem to rounding, which a test holds. Shapes, with B step sizes in front:

    server states (B, R, d)      clients (B, R, S, d)      what all clients keep (B, R, N, d)

The theory writes x_{t+1} = x_t − η_g·Δ_{t+1} with Δ the mean direction; the project's server rate is η_g / (η_l·K).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast, final

import torch
from torch import Tensor

from fedcm.core.algorithm import Algorithm, LocalRun, Round
from fedcm.theory.problems.draws import RoundDraws
from fedcm.theory.problems.known_problem import KnownProblem


@final
@dataclass(frozen=True)
class StepSizes:
    """One or several (η_l, η_g), walked side by side."""

    client_lr: tuple[float, ...]  # η_l
    global_lr: tuple[float, ...]  # η_g

    @classmethod
    def averaging(cls, client_lr: Sequence[float], steps: int) -> "StepSizes":
        """The server takes the mean of the clients' models: η_g = η_l·K."""
        return cls(tuple(client_lr), tuple(lr * steps for lr in client_lr))

    def column(self, name: str, dimensions: int) -> Tensor:
        return torch.tensor(getattr(self, name), dtype=torch.float64).reshape(-1, *[1] * dimensions)


class Watched(NamedTuple):
    """What the proofs speak of, in one round; of the cohort."""

    gradients: Tensor  # g_ik, (K, B, R, S, d)
    places: Tensor  # x_ik where they were taken, (K, B, R, S, d)


@final
class Walk:
    """One algorithm under way. `server` is its state after the rounds so far."""

    def __init__(
        self,
        algorithm: Algorithm[Any, Any, Any, Any],
        problem: KnownProblem,
        sizes: StepSizes,
        steps: int,
        start: Tensor,  # (R, d), or (B, R, d)
    ) -> None:
        self.algorithm, self.problem, self.sizes, self.steps = algorithm, problem, sizes, steps
        batch = len(sizes.client_lr)
        start = start.double().expand(batch, *start.shape[-2:]).contiguous()
        self.server = algorithm.init_server(start)
        everyone = start.unsqueeze(-2).expand(-1, -1, problem.clients, -1)
        self.kept = algorithm.init_client(everyone)
        self._client_lr = sizes.column("client_lr", 3)
        self._replicate = torch.arange(start.shape[-2])[:, None]
        self._done = 0

    def round(self, draws: RoundDraws, watch: bool = False) -> Watched | None:
        """One round with these cohorts and this noise."""
        cohort = draws.cohort
        sent = _each(self.algorithm.broadcast(self.server), lambda field: field.unsqueeze(-2))
        kept = _each(self.kept, lambda field: field[:, self._replicate, cohort])
        exact = self.problem.client_gradients(cohort)
        start = sent.params.expand(-1, -1, cohort.shape[1], -1)
        params, total, seen, places = start, torch.zeros_like(start), [], []
        for k in range(self.steps):
            gradient = _Gradient(exact, None if draws.noise is None else draws.noise[k])
            if watch:
                seen.append(gradient(params))
                places.append(params)
            direction = self.algorithm.direction(gradient, params, sent, kept)
            total = total + direction
            params = params - self._client_lr * direction
        steps = torch.full((1, 1, 1, 1), float(self.steps), dtype=torch.float64)
        client_lr = cast(float, self._client_lr)  # rates differ over the first axis: the functions only broadcast
        run = LocalRun(start, params, total, steps, client_lr, exact)
        reports, after = self.algorithm.report(run, sent, kept)
        for mine, new in zip(self.kept, after, strict=True):
            mine[:, self._replicate, cohort] = new
        mean = _each(reports, lambda field: field.mean(-2))
        self.server = self.algorithm.update(self.server, mean, self._round(cohort.shape[1]))
        self._done += 1
        return Watched(torch.stack(seen), torch.stack(places)) if watch else None

    def _round(self, cohort: int) -> Round:
        client_lr, global_lr = self.sizes.column("client_lr", 2), self.sizes.column("global_lr", 2)
        server_lr = global_lr / (client_lr * self.steps)
        return Round(
            self._done, cast(float, client_lr), cast(float, server_lr), cohort, self.problem.clients, self.steps
        )


@final
class _Gradient:
    """∇f_i plus this step's noise, as a function of the parameters."""

    __slots__ = ("exact", "noise")

    def __init__(self, exact: Any, noise: Tensor | None) -> None:
        self.exact, self.noise = exact, noise

    def __call__(self, params: Tensor) -> Tensor:
        gradient = self.exact(params)
        return gradient if self.noise is None else gradient + self.noise


def _each(message: Any, change: Any) -> Any:
    return type(message)(*map(change, message))
