"""A tiny federation for the identities: quadratics, given cohorts, everything written down; no simulator code.

    f_i(x) = ½ (x − b_i)ᵀ A_i (x − b_i)      g_ik(x) = A_i (x − b_i) + noise_ik + λ x, clipped if `clip` is set

`Federation.run` drives the six functions of any algorithm. Every place where the rule of an algorithm enters is a
method of its own, so that a mutant overrides one of them and leaves the rest alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from fedcm.core.algorithm import Algorithm, LocalRun, Round, Step, Vector, has_survey

AnyAlgorithm = Algorithm[Any, Any, Any, Any]


@final
@dataclass(frozen=True)
class Quadratic:
    """One client's loss."""

    curvature: Tensor  # A, (P, P), symmetric, positive definite
    centre: Vector  # b

    def gradient(self, params: Vector) -> Vector:
        return self.curvature @ (params - self.centre)


def make_quadratics(
    clients: int,
    size: int = 4,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    least: float = 0.5,
    most: float = 2.0,
) -> list[Quadratic]:
    """Heterogeneous in curvature and centre; the eigenvalues of every A_i are in [least, most]."""
    chance = torch.Generator().manual_seed(seed)
    made: list[Quadratic] = []
    for _ in range(clients):
        basis = torch.linalg.qr(torch.randn(size, size, generator=chance, dtype=torch.float64)).Q
        eigenvalues = least + (most - least) * torch.rand(size, generator=chance, dtype=torch.float64)
        centre = 2 * torch.randn(size, generator=chance, dtype=torch.float64)
        made.append(Quadratic((basis @ torch.diag(eigenvalues) @ basis.T).to(dtype), centre.to(dtype)))
    return made


def find_optimum(clients: Sequence[Quadratic]) -> Vector:
    """The minimum of the mean loss, in closed form: (Σ A_i) x = Σ A_i b_i."""
    curvature = torch.stack([c.curvature for c in clients]).sum(0)
    return torch.linalg.solve(curvature, torch.stack([c.curvature @ c.centre for c in clients]).sum(0))


def clip_vector(vector: Vector, norm: float | None) -> Vector:
    return vector if norm is None else vector * min(1.0, norm / float(vector.norm()))


@final
@dataclass(frozen=True)
class Minibatch:
    """The gradient of a minibatch as a function of the parameters, with weight decay and clipping."""

    client: Quadratic
    noise: Vector
    weight_decay: float
    clip: float | None

    def raw(self, params: Vector) -> Vector:
        """Return the gradient before decay and clipping; only some mutants use it."""
        return self.client.gradient(params) + self.noise

    def __call__(self, params: Vector) -> Vector:
        return clip_vector(self.raw(params) + self.weight_decay * params, self.clip)


class LocalRecord(NamedTuple):
    """The local steps of one client in one round."""

    gradients: list[Vector]  # of its minibatches, each at the client's parameters of that step
    end: Vector


class PastRound(NamedTuple):
    """The record of one round."""

    round: Round
    before: Any  # server state
    after: Any
    locals: dict[int, LocalRecord]  # by client, for the cohort
    kept_before: dict[int, Any]  # by client, for all N; a new client has its initial state
    kept_after: dict[int, Any]


@dataclass(frozen=True)
class Federation:
    """An algorithm, its clients, their cohorts and their steps."""

    algorithm: AnyAlgorithm
    clients: Sequence[Quadratic]
    cohorts: Sequence[Sequence[int]]  # one per round; an empty one changes nothing
    steps: Sequence[int]  # K_i
    client_lrs: Sequence[float]  # η_l of every round
    server_lr: float = 1.0
    noise: float = 0.0  # standard deviation of the minibatch noise
    weight_decay: float = 0.0
    clip: float | None = None
    seed: int = 0
    mixing: Tensor | None = None  # the weights of a graph, for decentralised algorithms

    # the functions of the algorithm, which mutants override

    def init_server(self, params: Vector) -> Any:
        return self.algorithm.init_server(params)

    def init_client(self, params: Vector) -> Any:
        return self.algorithm.init_client(params)

    def broadcast(self, server: Any) -> Any:
        return self.algorithm.broadcast(server)

    def direction(self, gradient: Minibatch, params: Vector, sent: Any, kept: Any) -> Vector:
        return self.algorithm.direction(gradient, params, sent, kept)

    def step(
        self, gradient: Minibatch, params: Vector, sent: Any, kept: Any, local: Any, step: Step
    ) -> tuple[Vector, Any]:
        if type(self.algorithm).step is Algorithm.step:
            return self.direction(gradient, params, sent, kept), local
        return self.algorithm.step(gradient, params, sent, kept, local, step)

    def report(self, run: LocalRun, sent: Any, kept: Any) -> tuple[Any, Any]:
        return self.algorithm.report(run, sent, kept)

    def merge(self, server: Any, mean: Any, round: Round) -> Any:
        return self.algorithm.merge(server, mean, round)

    def mix(self, kept: Any, mixed: Any, round: Round) -> Any:
        return self.algorithm.mix(kept, mixed, round)

    def update(self, server: Any, mean: Any, round: Round) -> Any:
        return self.algorithm.update(server, mean, round)

    # the round loop

    def start(self) -> Vector:
        chance = torch.Generator().manual_seed(self.seed)
        centre = self.clients[0].centre
        return torch.randn(centre.shape, generator=chance, dtype=torch.float64).to(centre.dtype)

    def minibatch(self, client: int, round: int, step: int) -> Minibatch:
        centre = self.clients[client].centre
        chance = torch.Generator().manual_seed(hash((self.seed, client, round, step)))
        noise = self.noise * torch.randn(centre.shape, generator=chance, dtype=torch.float64).to(centre.dtype)
        return Minibatch(self.clients[client], noise, self.weight_decay, self.clip)

    def run(self) -> list[PastRound]:
        server = self.init_server(self.start())
        kept = {client: self.init_client(self.start()) for client in range(len(self.clients))}
        history: list[PastRound] = []
        for index, (cohort, client_lr) in enumerate(zip(self.cohorts, self.client_lrs, strict=True)):
            mean_steps = sum(self.steps[i] for i in cohort) / len(cohort) if cohort else float("nan")
            round = Round(index, client_lr, self.server_lr, len(cohort), len(self.clients), mean_steps)
            kept_before, before = dict(kept), server
            locals: dict[int, LocalRecord] = {}
            reports: list[Any] = []
            if cohort and has_survey(self.algorithm):
                surveys = [self.algorithm.survey(self._full(i), before.params, kept[i]) for i in cohort]
                server = self.merge(server, average(surveys), round)
            for client in cohort:
                sent = self.broadcast(server)
                report, kept[client], locals[client] = self._local(client, round, sent, kept[client])
                reports.append(report)
            if reports and self.mixing is not None:
                for client in cohort:
                    kept[client] = self.mix(kept[client], average(reports, self.mixing[client]), round)
            if reports:
                server = self.update(server, average(reports), round)
            history.append(PastRound(round, before, server, locals, kept_before, dict(kept)))
        return history

    def _local(self, client: int, round: Round, sent: Any, kept: Any) -> tuple[Any, Any, LocalRecord]:
        full_gradient, count = self._full(client), torch.tensor([self.steps[client]], dtype=sent.params.dtype)
        start, local = self.algorithm.start(sent, kept), self.algorithm.init_local(full_gradient, sent, kept)
        params, total = start, torch.zeros_like(start)
        gradients: list[Vector] = []
        for index in range(self.steps[client]):
            gradient = self.minibatch(client, round.index, index)
            gradients.append(gradient(params))
            step = Step(index, count, round.client_lr, (start.shape,))
            direction, local = self.step(gradient, params, sent, kept, local, step)
            total = total + direction
            params = start - round.client_lr * total
        run = LocalRun(start, params, total, count, round.client_lr, full_gradient, local)
        report, kept = self.report(run, sent, kept)
        return report, kept, LocalRecord(gradients, params)

    def _full(self, client: int) -> Minibatch:
        centre = self.clients[client].centre
        return Minibatch(self.clients[client], torch.zeros_like(centre), self.weight_decay, self.clip)


def average(messages: Sequence[Any], weights: Tensor | None = None) -> Any:
    """The mean of messages, field by field; with weights, their weighted sum."""
    if weights is None:
        return type(messages[0])(*[torch.stack(field).mean(0) for field in zip(*messages, strict=True)])
    weights = weights.to(messages[0][0].dtype)
    return type(messages[0])(*[weights @ torch.stack(field) for field in zip(*messages, strict=True)])


def list_everyone(clients: int, rounds: int) -> list[list[int]]:
    return [list(range(clients))] * rounds


def draw_cohorts(clients: int, rounds: int, probability: float, seed: int = 0) -> list[list[int]]:
    """Draw cohorts in which every client takes part with this probability; they may be empty."""
    chance = torch.Generator().manual_seed(seed)
    return [
        [i for i, u in enumerate(torch.rand(clients, generator=chance).tolist()) if u < probability]
        for _ in range(rounds)
    ]


def draw_fixed_cohorts(clients: int, rounds: int, size: int, seed: int = 0) -> list[list[int]]:
    """Draw cohorts of a fixed size without replacement."""
    chance = torch.Generator().manual_seed(seed)
    return [sorted(torch.randperm(clients, generator=chance)[:size].tolist()) for _ in range(rounds)]


def make_decaying_rates(first: float, decay: float, rounds: int) -> list[float]:
    return [first * decay**t for t in range(rounds)]
