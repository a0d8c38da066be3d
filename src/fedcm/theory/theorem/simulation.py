"""Rounds of any algorithm on a known problem, for many replicates and step sizes at once, in float64.

The algorithms are the project's own objects. Only the loop is separate: `fedcm.core.local.steps` steps torch models
through minibatches, one client at a time, and would need hours for thousands of rounds of hundreds of replicates. A
test checks that both agree to rounding on the same problem. Shapes, with B step sizes in front:

    server states (B, R, d)      clients (B, R, S, d)      states of all clients (B, R, N, d)

The theory writes x_{t+1} = x_t − η_g·Δ_{t+1} with Δ the mean direction; the project's server rate is η_g / (η_l·K).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast, final

import torch
from torch import Tensor

from fedcm.core.algorithm import Algorithm, LocalRun, Round, Step, has_survey
from fedcm.theory.problems.known_problem import KnownProblem
from fedcm.theory.problems.sampling import RoundSample


@final
@dataclass(frozen=True)
class StepSizes:
    """One or several pairs (η_l, η_g), simulated side by side."""

    client_lr: tuple[float, ...]  # η_l
    global_lr: tuple[float, ...]  # η_g

    @classmethod
    def for_averaging(cls, client_lr: Sequence[float], steps: int) -> "StepSizes":
        """Return step sizes with η_g = η_l·K, where the server takes the mean of the clients' models."""
        return cls(tuple(client_lr), tuple(lr * steps for lr in client_lr))

    def as_column(self, name: str, dimensions: int) -> Tensor:
        """Return the field `name` as (B, 1, …, 1), with that number of trailing dimensions."""
        return torch.tensor(getattr(self, name), dtype=torch.float64).reshape(-1, *[1] * dimensions)


class RoundTrace(NamedTuple):
    """The cohort's gradients in one round, for the tests of the lemmas."""

    gradients: Tensor  # g_ik, (K, B, R, S, d)
    positions: Tensor  # x_ik where they were taken, (K, B, R, S, d)


@final
class Simulation:
    """One algorithm, simulated round by round. `server` is its state after the rounds so far."""

    def __init__(
        self,
        algorithm: Algorithm[Any, Any, Any, Any],
        problem: KnownProblem,
        sizes: StepSizes,
        steps: int,
        start: Tensor,
    ) -> None:
        """Start at x_0.

        Args:
            algorithm: Any algorithm of the project.
            problem: The problem to minimise.
            sizes: B pairs of step sizes.
            steps: Local steps per round, K.
            start: x_0 of every replicate, (R, d) or (B, R, d).
        """
        self.algorithm, self.problem, self.sizes, self.steps = algorithm, problem, sizes, steps
        batch = len(sizes.client_lr)
        start = start.double().expand(batch, *start.shape[-2:]).contiguous()
        self.server = algorithm.init_server(start)
        everyone = start.unsqueeze(-2).expand(-1, -1, problem.clients, -1)
        self.client_states = algorithm.init_client(everyone)
        self._client_lr = sizes.as_column("client_lr", 3)
        self._replicate = torch.arange(start.shape[-2])[:, None]
        self._done = 0

    def run_round(self, sample: RoundSample, record: bool = False) -> RoundTrace | None:
        """Run one round with this cohort and this noise.

        Returns:
            The gradients and where they were taken if `record` is set, otherwise None.
        """
        cohort = sample.cohort
        sent = _map_fields(self.algorithm.broadcast(self.server), lambda field: field.unsqueeze(-2))
        states = _map_fields(self.client_states, lambda field: field[:, self._replicate, cohort])
        exact = self.problem.client_gradients(cohort)
        if has_survey(self.algorithm):
            survey = _map_fields(self.algorithm.survey(exact, sent.params, states), lambda field: field.mean(-2))
            self.server = self.algorithm.merge(self.server, survey, self._make_round(cohort.shape[1]))
            sent = _map_fields(self.algorithm.broadcast(self.server), lambda field: field.unsqueeze(-2))
        start, local = self.algorithm.start(sent, states), self.algorithm.init_local(exact, sent, states)
        start = start.expand(-1, -1, cohort.shape[1], -1)
        params, total, gradients, positions = start, torch.zeros_like(start), [], []
        steps = torch.full((1, 1, 1, 1), float(self.steps), dtype=torch.float64)
        client_lr = cast(float, self._client_lr)  # a tensor works too: the algorithms only broadcast it
        for k in range(self.steps):
            gradient = _NoisyGradient(exact, None if sample.noise is None else sample.noise[k])
            if record:
                gradients.append(gradient(params))
                positions.append(params)
            step = Step(k, steps, client_lr, (start.shape[-1:],))
            direction, local = self.algorithm.step(gradient, params, sent, states, local, step)
            total = total + direction
            params = params - self._client_lr * direction
        run = LocalRun(start, params, total, steps, client_lr, exact, local)
        reports, new_states = self.algorithm.report(run, sent, states)
        for field, new in zip(self.client_states, new_states, strict=True):
            field[:, self._replicate, cohort] = new
        mean = _map_fields(reports, lambda field: field.mean(-2))
        self.server = self.algorithm.update(self.server, mean, self._make_round(cohort.shape[1]))
        self._done += 1
        return RoundTrace(torch.stack(gradients), torch.stack(positions)) if record else None

    def _make_round(self, cohort_size: int) -> Round:
        client_lr, global_lr = self.sizes.as_column("client_lr", 2), self.sizes.as_column("global_lr", 2)
        server_lr = global_lr / (client_lr * self.steps)
        return Round(
            self._done, cast(float, client_lr), cast(float, server_lr), cohort_size, self.problem.clients, self.steps
        )


@final
class _NoisyGradient:
    """∇f_i plus this step's noise, as a function of the parameters."""

    __slots__ = ("exact", "noise")

    def __init__(self, exact: Any, noise: Tensor | None) -> None:
        self.exact, self.noise = exact, noise

    def __call__(self, params: Tensor) -> Tensor:
        gradient = self.exact(params)
        return gradient if self.noise is None else gradient + self.noise


def _map_fields(message: Any, change: Any) -> Any:
    return type(message)(*map(change, message))
