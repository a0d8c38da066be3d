"""What a federated problem with known constants is: f = mean of f_1 … f_N, its constants, its minimum, its gradients.

Points are (…, d): one, or a row for every replicate. Where clients stand they are (…, R, S, d) for `clients` of (R, S),
so that R replicates of S clients each, and any number of step sizes in front, take a step in one call.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
from torch import Tensor


class Constants(NamedTuple):
    """What the theorem's assumptions name."""

    strong_convexity: float  # μ: of every f_i; 0 where they are not strongly convex
    smoothness: float  # L: of every f_i
    noise: float  # σ_l: E‖g − ∇f_i(x)‖² is exactly its square
    dissimilarity: float  # σ_g: root of the mean over clients of ‖∇f_i(x) − ∇f(x)‖², at x* or where it is largest


class KnownProblem(Protocol):
    @property
    def clients(self) -> int: ...

    @property
    def dimension(self) -> int: ...

    @property
    def constants(self) -> Constants: ...

    @property
    def optimum(self) -> Tensor:
        """x*, (d,)."""
        ...

    @property
    def least(self) -> float:
        """f* = f(x*)."""
        ...

    def client_gradients(self, clients: Tensor) -> Callable[[Tensor], Tensor]:
        """For clients (R, S): points (…, R, S, d) -> ∇f_i there, without noise. Asked for once a round."""
        ...

    def value(self, points: Tensor) -> Tensor:
        """f at (…, d), as (…,)."""
        ...

    def gradient(self, points: Tensor) -> Tensor:
        """∇f at (…, d), as (…, d)."""
        ...


def dissimilarity(problem: KnownProblem, points: Tensor) -> Tensor:
    """σ_g at given points (R, d), as (R,): the root of the mean over all clients of ‖∇f_i − ∇f‖²."""
    everyone = torch.arange(problem.clients).expand(len(points), -1)
    own = problem.client_gradients(everyone)(points.unsqueeze(-2).expand(-1, problem.clients, -1))
    return (own - problem.gradient(points).unsqueeze(-2)).square().sum(-1).mean(-1).sqrt()
