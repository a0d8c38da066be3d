"""Exact second moments of FedCM on quadratics, over cohorts and noise together: no replicates, no tolerance.

Written from the paper's pseudocode, independently of the simulation that it checks. The curvatures are diagonal, so the
coordinates are independent; with e = x − x*, one client's local steps are linear in u = (e, Δ, 1):

    e_{k+1} = (1 − η_l·α·a)·e_k − η_l·(1 − α)·Δ − η_l·α·b − η_l·α·noise

so a whole round is u⁺ = A_S u + noise with A_S the mean of the cohort's A_i, and E[uuᵀ] has its own recursion:

    E[A_S M A_Sᵀ] = ĀMĀᵀ + (N − S)/(S(N − 1)) · mean_i (A_i − Ā)M(A_i − Ā)ᵀ        without replacement
"""

from dataclasses import dataclass
from functools import cached_property
from typing import final

import torch
from torch import Tensor

from fedcm.theory.problems.quadratics import Quadratics


@final
@dataclass(frozen=True)
class LocalMoments:
    """Moments of every client i and coordinate j, after k = 0 … K local steps."""

    mean: Tensor  # (K + 1, N, d, 3): the factor of u in e_k
    variance: Tensor  # (K + 1, N, d): of the noise in e_k


@final
@dataclass(frozen=True)
class Moments:
    """FedCM on quadratics; every method takes E[uuᵀ] of the round as `moments`, (d, 3, 3)."""

    problem: Quadratics
    steps: int
    cohort_size: int
    alpha: float
    client_lr: float
    global_lr: float

    @cached_property
    def local(self) -> LocalMoments:
        curvature, slope = self.problem.curvatures, self.problem.slopes
        pull = 1 - self.client_lr * self.alpha * curvature
        row = torch.zeros(*curvature.shape, 3, dtype=torch.float64)
        row[..., 0] = 1
        variance = torch.zeros_like(curvature)
        rows, variances = [row], [variance]
        added = (self.client_lr * self.alpha * self.problem.noise) ** 2 / self.problem.dimension
        for _ in range(self.steps):
            row = row * pull[..., None]
            row[..., 1] -= self.client_lr * (1 - self.alpha)
            row[..., 2] -= self.client_lr * self.alpha * slope
            variance = variance * pull**2 + added
            rows.append(row)
            variances.append(variance)
        return LocalMoments(torch.stack(rows), torch.stack(variances))

    def start(self, x: Tensor) -> Tensor:
        """Return the moments at x with Δ_0 = 0."""
        u = torch.stack([x - self.problem.optimum, torch.zeros_like(x), torch.ones_like(x)], dim=-1)
        return u[..., :, None] * u[..., None, :]

    def drift(self, moments: Tensor) -> float:
        """ε_t = (1/KN) Σ E‖x_ik − x_t‖² over k = 0 … K − 1 and all clients."""
        local = self.local
        moved = local.mean[:-1] - torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
        squares = torch.einsum("knja,jab,knjb->knj", moved, moments, moved) + local.variance[:-1]
        return float(squares.sum(-1).mean())

    def mean_gradient(self, moments: Tensor) -> float:
        """E‖Δ̃_t‖²: Δ̃ = (Δ_{t+1} − (1 − α)Δ_t)/α."""
        rows, variance = self._direction
        rows = (rows - (1 - self.alpha) * torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)) / self.alpha
        sampled = self._average_over_cohorts(rows[..., None, :], moments).sum()
        return float(sampled + variance.sum() / self.alpha**2)

    def momentum(self, moments: Tensor) -> float:
        """E‖Δ_t‖²."""
        return float(moments[:, 1, 1].sum())

    def excess(self, moments: Tensor) -> float:
        """E f(z_t) − f*."""
        return float(0.5 * (self.problem.eigenvalues * self._auxiliary(moments)).sum())

    def squared_gradient_at_z(self, moments: Tensor) -> float:
        """E‖∇f(z_t)‖²."""
        return float((self.problem.eigenvalues**2 * self._auxiliary(moments)).sum())

    def _auxiliary(self, moments: Tensor) -> Tensor:
        """E(z_t − x*)² per coordinate: z_t − x* = e − ((1 − α)/α)·η_g·Δ."""
        row = torch.tensor([1.0, -(1 - self.alpha) / self.alpha * self.global_lr, 0.0], dtype=torch.float64)
        return torch.einsum("a,jab,b->j", row, moments, row)

    def squared_gradient(self, moments: Tensor) -> float:
        """E‖∇f(x_t)‖²."""
        return float((self.problem.eigenvalues**2 * moments[:, 0, 0]).sum())

    def squared_dissimilarity(self, moments: Tensor) -> float:
        """The expected mean over clients of ‖∇f_i(x_t) − ∇f(x_t)‖²."""
        zero = torch.zeros_like(self.problem.slopes)
        rows = torch.stack([self.problem.curvatures - self.problem.eigenvalues, zero, self.problem.slopes], dim=-1)
        return float(torch.einsum("nja,jab,njb->nj", rows, moments, rows).sum(-1).mean())

    def advance(self, moments: Tensor) -> Tensor:
        """Return the moments after one more round, x_{t+1} = x_t − η_g·Δ_{t+1}."""
        direction, variance = self._direction
        whole = torch.zeros(*direction.shape[:2], 3, 3, dtype=torch.float64)
        whole[..., 0, :] = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64) - self.global_lr * direction
        whole[..., 1, :] = direction
        whole[..., 2, 2] = 1
        mean = self._average_over_cohorts(whole, moments)
        noise = torch.tensor([-self.global_lr, 1.0, 0.0], dtype=torch.float64)
        return mean + variance[:, None, None] * noise[:, None] * noise

    @cached_property
    def _direction(self) -> tuple[Tensor, Tensor]:
        """A client's (x_t − x_iK)/(η_l·K) as rows over u, (N, d, 3), and the variance of the cohort's mean, (d,)."""
        local = self.local
        length = self.client_lr * self.steps
        moved = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64) - local.mean[-1]
        return moved / length, local.variance[-1].mean(0) / length**2 / self.cohort_size

    def _average_over_cohorts(self, rows: Tensor, moments: Tensor) -> Tensor:
        """Return the expected second moment of (mean of the cohort's rows)·u; rows (N, d, r, 3) -> (d, r, r)."""
        clients = rows.shape[0]
        middle = rows.mean(0)
        deviations = rows - middle
        share = (clients - self.cohort_size) / (self.cohort_size * max(clients - 1, 1))
        between = torch.einsum("njra,jab,njsb->jrs", deviations, moments, deviations) / clients
        return torch.einsum("jra,jab,jsb->jrs", middle, moments, middle) + share * between
