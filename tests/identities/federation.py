"""A tiny federation for the identities: quadratics, given cohorts, everything written down; no simulator code.

    f_i(x) = ½ (x − b_i)ᵀ A_i (x − b_i)      g_ik(x) = A_i (x − b_i) + noise_ik + λ x, then clipped where asked

`Federation.run` drives the six functions of any algorithm. Every place where the rule of an algorithm enters is a
method of its own, so that a mutant overrides one of them and leaves the rest alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from fedcm.core.algorithm import Algorithm, LocalRun, Round, Vector

AnyAlgorithm = Algorithm[Any, Any, Any, Any]


@final
@dataclass(frozen=True)
class Quadratic:
    """One client's loss."""

    curvature: Tensor  # A, (P, P), symmetric, positive definite
    centre: Vector  # b

    def gradient(self, params: Vector) -> Vector:
        return self.curvature @ (params - self.centre)


def quadratics(
    clients: int,
    size: int = 4,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    least: float = 0.5,
    most: float = 2.0,
) -> list[Quadratic]:
    """Heterogeneous in curvature and centre; eigenvalues of every A_i lie in [least, most]."""
    chance = torch.Generator().manual_seed(seed)
    made: list[Quadratic] = []
    for _ in range(clients):
        basis = torch.linalg.qr(torch.randn(size, size, generator=chance, dtype=torch.float64)).Q
        eigenvalues = least + (most - least) * torch.rand(size, generator=chance, dtype=torch.float64)
        centre = 2 * torch.randn(size, generator=chance, dtype=torch.float64)
        made.append(Quadratic((basis @ torch.diag(eigenvalues) @ basis.T).to(dtype), centre.to(dtype)))
    return made


def optimum(clients: Sequence[Quadratic]) -> Vector:
    """The minimum of the mean loss, in closed form: (Σ A_i) x = Σ A_i b_i."""
    curvature = torch.stack([c.curvature for c in clients]).sum(0)
    return torch.linalg.solve(curvature, torch.stack([c.curvature @ c.centre for c in clients]).sum(0))


def clipped(vector: Vector, norm: float | None) -> Vector:
    return vector if norm is None else vector * min(1.0, norm / float(vector.norm()))


@final
@dataclass(frozen=True)
class Minibatch:
    """A minibatch as a function of the parameters: what a client does to its own gradient is inside."""

    client: Quadratic
    noise: Vector
    weight_decay: float
    clip: float | None

    def raw(self, params: Vector) -> Vector:
        """Before decay and clipping; right algorithms never see it, some mutants do."""
        return self.client.gradient(params) + self.noise

    def __call__(self, params: Vector) -> Vector:
        return clipped(self.raw(params) + self.weight_decay * params, self.clip)


class Local(NamedTuple):
    """What one client did in one round."""

    gradients: list[Vector]  # of its minibatches, each where the client stood when it drew it
    end: Vector


class Past(NamedTuple):
    """What happened in one round."""

    round: Round
    before: Any  # server state
    after: Any
    locals: dict[int, Local]  # by client; the cohort's only
    kept_before: dict[int, Any]  # by client; all N, a client not yet seen has its first state
    kept_after: dict[int, Any]


@dataclass(frozen=True)
class Federation:
    """An algorithm, the clients, and who does how much when."""

    algorithm: AnyAlgorithm
    clients: Sequence[Quadratic]
    cohorts: Sequence[Sequence[int]]  # one a round; in an empty one nothing happens
    steps: Sequence[int]  # K_i
    client_lrs: Sequence[float]  # η_l of every round
    server_lr: float = 1.0
    noise: float = 0.0  # standard deviation of the minibatch noise
    weight_decay: float = 0.0
    clip: float | None = None
    seed: int = 0

    # The rule of an algorithm: what a mutant overrides.

    def init_server(self, params: Vector) -> Any:
        return self.algorithm.init_server(params)

    def init_client(self, params: Vector) -> Any:
        return self.algorithm.init_client(params)

    def broadcast(self, server: Any) -> Any:
        return self.algorithm.broadcast(server)

    def direction(self, gradient: Minibatch, params: Vector, sent: Any, kept: Any) -> Vector:
        return self.algorithm.direction(gradient, params, sent, kept)

    def report(self, run: LocalRun, sent: Any, kept: Any) -> tuple[Any, Any]:
        return self.algorithm.report(run, sent, kept)

    def update(self, server: Any, mean: Any, round: Round) -> Any:
        return self.algorithm.update(server, mean, round)

    # The rounds.

    def start(self) -> Vector:
        chance = torch.Generator().manual_seed(self.seed)
        centre = self.clients[0].centre
        return torch.randn(centre.shape, generator=chance, dtype=torch.float64).to(centre.dtype)

    def minibatch(self, client: int, round: int, step: int) -> Minibatch:
        centre = self.clients[client].centre
        chance = torch.Generator().manual_seed(hash((self.seed, client, round, step)))
        noise = self.noise * torch.randn(centre.shape, generator=chance, dtype=torch.float64).to(centre.dtype)
        return Minibatch(self.clients[client], noise, self.weight_decay, self.clip)

    def run(self) -> list[Past]:
        server = self.init_server(self.start())
        kept = {client: self.init_client(self.start()) for client in range(len(self.clients))}
        history: list[Past] = []
        for index, (cohort, client_lr) in enumerate(zip(self.cohorts, self.client_lrs, strict=True)):
            mean_steps = sum(self.steps[i] for i in cohort) / len(cohort) if cohort else float("nan")
            round = Round(index, client_lr, self.server_lr, len(cohort), len(self.clients), mean_steps)
            kept_before, before = dict(kept), server
            locals: dict[int, Local] = {}
            reports: list[Any] = []
            for client in cohort:
                sent = self.broadcast(before)
                report, kept[client], locals[client] = self._local(client, round, sent, kept[client])
                reports.append(report)
            if reports:
                mean = type(reports[0])(*[torch.stack(field).mean(0) for field in zip(*reports, strict=True)])
                server = self.update(before, mean, round)
            history.append(Past(round, before, server, locals, kept_before, dict(kept)))
        return history

    def _local(self, client: int, round: Round, sent: Any, kept: Any) -> tuple[Any, Any, Local]:
        params: Vector = sent.params.clone()
        total = torch.zeros_like(params)
        gradients: list[Vector] = []
        for step in range(self.steps[client]):
            gradient = self.minibatch(client, round.index, step)
            gradients.append(gradient(params))
            total = total + self.direction(gradient, params, sent, kept)
            params = sent.params - round.client_lr * total
        steps = torch.tensor([self.steps[client]], dtype=params.dtype)
        full_gradient = Minibatch(self.clients[client], torch.zeros_like(params), self.weight_decay, self.clip)
        run = LocalRun(sent.params, params, total, steps, round.client_lr, full_gradient)
        report, kept = self.report(run, sent, kept)
        return report, kept, Local(gradients, params)


def everyone(clients: int, rounds: int) -> list[list[int]]:
    return [list(range(clients))] * rounds


def some(clients: int, rounds: int, probability: float, seed: int = 0) -> list[list[int]]:
    """Every client is in with this probability, so cohorts vary in size and may be empty."""
    chance = torch.Generator().manual_seed(seed)
    return [
        [i for i, u in enumerate(torch.rand(clients, generator=chance).tolist()) if u < probability]
        for _ in range(rounds)
    ]


def in_turn(clients: int, rounds: int, size: int, seed: int = 0) -> list[list[int]]:
    """So many clients a round, drawn without replacement."""
    chance = torch.Generator().manual_seed(seed)
    return [sorted(torch.randperm(clients, generator=chance)[:size].tolist()) for _ in range(rounds)]


def decaying(first: float, decay: float, rounds: int) -> list[float]:
    return [first * decay**t for t in range(rounds)]
