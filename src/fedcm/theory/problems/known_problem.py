"""The interface of a federated problem with known constants: f = mean of f_1 … f_N, its minimum and its gradients.

Points have shape (…, d): one point, or a row per replicate. The clients' own points have shape (…, R, S, d) for
`clients` of shape (R, S), so that R replicates of S clients, with any number of step sizes in front, take a step in one
call.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
from torch import Tensor


class Constants(NamedTuple):
    """The constants that the theorem's assumptions name."""

    strong_convexity: float  # μ: of every f_i; 0 if they are not strongly convex
    smoothness: float  # L: of every f_i
    noise: float  # σ_l: E‖g − ∇f_i(x)‖² is exactly its square
    dissimilarity: float  # σ_g: root of the mean over clients of ‖∇f_i(x) − ∇f(x)‖², at x* or where it is largest


class KnownProblem(Protocol):
    """A federated problem whose constants and minimum are known."""

    @property
    def clients(self) -> int:
        """The number of clients, N."""
        ...

    @property
    def dimension(self) -> int:
        """The number of parameters, d."""
        ...

    @property
    def constants(self) -> Constants:
        """μ, L, σ_l and σ_g."""
        ...

    @property
    def optimum(self) -> Tensor:
        """The minimiser x*, (d,)."""
        ...

    @property
    def minimum(self) -> float:
        """The value f* = f(x*)."""
        ...

    def client_gradients(self, clients: Tensor) -> Callable[[Tensor], Tensor]:
        """Return the noise-free gradient function of these clients; called once per round.

        Args:
            clients: Client indices, (R, S).

        Returns:
            A function from points (…, R, S, d) to ∇f_i at those points.
        """
        ...

    def value(self, points: Tensor) -> Tensor:
        """Return f at points (…, d), as (…,)."""
        ...

    def gradient(self, points: Tensor) -> Tensor:
        """Return ∇f at points (…, d), as (…, d)."""
        ...


def compute_dissimilarity(problem: KnownProblem, points: Tensor) -> Tensor:
    """Return σ_g at points (R, d), as (R,): the root of the mean over all clients of ‖∇f_i − ∇f‖²."""
    everyone = torch.arange(problem.clients).expand(len(points), -1)
    gradients = problem.client_gradients(everyone)(points.unsqueeze(-2).expand(-1, problem.clients, -1))
    return (gradients - problem.gradient(points).unsqueeze(-2)).square().sum(-1).mean(-1).sqrt()
