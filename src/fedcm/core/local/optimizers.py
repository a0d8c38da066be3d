"""Optimisers of the local steps: they map a client's gradient g to u, before the algorithm sees it.

u is what torch.optim would move the parameters by, per unit of learning rate:

    sgd     b ← μ·b + (1 − dampening)·g,  b = g in the first step;  u = b, or g + μ·b with Nesterov's momentum
    adam    m ← β₁·m + (1 − β₁)·g,  v ← β₂·v + (1 − β₂)·g²;  u = m̂ / (√v̂ + ε),  m̂ = m / (1 − β₁^k),  v̂ = v / (1 − β₂^k)
    adamw   u = m̂ / (√v̂ + ε) + λ·y

in step k = 1, 2, … of a round. The state is fresh in every round. The algorithm uses u wherever it would use g, so
FedCM steps along α·u + (1−α)·Δ, and the directions that it averages have the units of u.

Everything is elementwise, so one client (P,) and a stack of clients (C, P) share the code.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, final

import torch

from fedcm.core.algorithm import Gradient, Vector


class LocalOptimizer(ABC):
    """Two pure functions: the state before the first step of a round, and one step."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def is_identity(self) -> bool:
        """Whether u = g in every step."""
        return False

    @abstractmethod
    def init(self, params: Vector) -> Any:
        """Return the state before the first step: a NamedTuple of tensors of the parameters' shape."""

    @abstractmethod
    def transform(self, gradient: Vector, params: Vector, state: Any, step: int) -> tuple[Vector, Any]:
        """Return u and the new state.

        Args:
            gradient: The gradient g of a minibatch, with weight decay in the loss and clipping.
            params: The parameters at which it was computed.
            state: The state before the step; it is not changed.
            step: The index of the step, from 0.
        """


class MomentumState(NamedTuple):
    momentum: Vector  # b


class AdamState(NamedTuple):
    first_moment: Vector  # m
    second_moment: Vector  # v


@final
@dataclass(frozen=True)
class SGD(LocalOptimizer):
    """Stochastic gradient descent with momentum, as torch.optim.SGD."""

    momentum: float = 0.0  # μ, in [0, 1)
    dampening: float = 0.0  # in [0, 1)
    nesterov: bool = False  # needs momentum, and no dampening

    def __post_init__(self) -> None:
        _convert_numbers(self, "momentum", "dampening")
        if not (0 <= self.momentum < 1 and 0 <= self.dampening < 1):
            raise ValueError(
                f"momentum and dampening must be at least 0 and below 1, got {self.momentum} and {self.dampening}"
            )
        if self.nesterov and (self.momentum == 0 or self.dampening != 0):
            raise ValueError("nesterov needs momentum above 0 and dampening 0")

    @property
    def is_identity(self) -> bool:
        """True without momentum."""
        return self.momentum == 0

    def init(self, params: Vector) -> MomentumState:
        """Return a momentum of 0."""
        return MomentumState(_make_zeros(params))

    def transform(
        self, gradient: Vector, params: Vector, state: MomentumState, step: int
    ) -> tuple[Vector, MomentumState]:
        """Return the momentum, or Nesterov's look-ahead along it."""
        if self.is_identity:
            return gradient, state
        if step == 0:
            momentum = gradient.clone()
        else:
            momentum = self.momentum * state.momentum
            momentum.add_(gradient, alpha=1 - self.dampening)
        moved = gradient.add(momentum, alpha=self.momentum) if self.nesterov else momentum.clone()
        return moved, MomentumState(momentum)


@final
@dataclass(frozen=True)
class Adam(LocalOptimizer):
    """Adam, as torch.optim.Adam."""

    betas: tuple[float, float] = (0.9, 0.999)  # β₁ and β₂, each in [0, 1)
    eps: float = 1e-8  # ε, above 0

    def __post_init__(self) -> None:
        _check_adam(self)

    def init(self, params: Vector) -> AdamState:
        """Return moments of 0."""
        return AdamState(_make_zeros(params), _make_zeros(params))

    def transform(self, gradient: Vector, params: Vector, state: AdamState, step: int) -> tuple[Vector, AdamState]:
        """Return the first moment over the root of the second one."""
        return _transform_by_adam(self.betas, self.eps, gradient, state, step)


@final
@dataclass(frozen=True)
class AdamW(LocalOptimizer):
    """Adam with weight decay outside the gradient, as torch.optim.AdamW."""

    betas: tuple[float, float] = (0.9, 0.999)  # β₁ and β₂, each in [0, 1)
    eps: float = 1e-8  # ε, above 0
    weight_decay: float = 0.01  # λ, at least 0; beside client.weight_decay

    def __post_init__(self) -> None:
        _check_adam(self)
        _convert_numbers(self, "weight_decay")
        if not 0 <= self.weight_decay <= 1e6:
            raise ValueError(f"weight_decay must be at least 0 and at most 1e6, got {self.weight_decay}")

    def init(self, params: Vector) -> AdamState:
        """Return moments of 0."""
        return AdamState(_make_zeros(params), _make_zeros(params))

    def transform(self, gradient: Vector, params: Vector, state: AdamState, step: int) -> tuple[Vector, AdamState]:
        """Return Adam's u + λ·params."""
        moved, state = _transform_by_adam(self.betas, self.eps, gradient, state, step)
        return moved.add_(params, alpha=self.weight_decay), state


OPTIMIZERS: dict[str, type[LocalOptimizer]] = {"sgd": SGD, "adam": Adam, "adamw": AdamW}


@final
class OptimizedGradient:
    """The gradient of a minibatch, mapped by an optimiser.

    Every call starts from the state before the step. `state` is the state after the last call, so that a method that
    calls the gradient twice in a step advances the state once.
    """

    __slots__ = ("_before", "_gradient", "_optimizer", "_step", "state")

    def __init__(self, optimizer: LocalOptimizer, gradient: Gradient, state: Any, step: int) -> None:
        self._optimizer, self._gradient, self._before, self._step = optimizer, gradient, state, step
        self.state = state

    def __call__(self, params: Vector) -> Vector:
        moved, self.state = self._optimizer.transform(self._gradient(params), params, self._before, self._step)
        return moved


def _transform_by_adam(
    betas: tuple[float, float], eps: float, gradient: Vector, state: AdamState, step: int
) -> tuple[Vector, AdamState]:
    (beta1, beta2), count = betas, step + 1
    first = torch.lerp(state.first_moment, gradient, 1 - beta1)
    second = (beta2 * state.second_moment).addcmul_(gradient, gradient, value=1 - beta2)
    scale = second.sqrt().div_(math.sqrt(1 - beta2**count)).add_(eps)
    return (first / (1 - beta1**count)).div_(scale), AdamState(first, second)


def _make_zeros(params: Vector) -> Vector:
    return torch.zeros_like(params, memory_format=torch.contiguous_format)


def _check_adam(optimizer: Any) -> None:
    _convert_numbers(optimizer, "eps")
    betas = optimizer.betas
    if not isinstance(betas, list | tuple) or len(betas) != 2:
        raise ValueError(f"betas must be two numbers, got {betas!r}")
    try:
        pair = tuple(float(beta) for beta in betas)
    except (TypeError, ValueError):
        raise ValueError(f"betas must be two numbers, got {betas!r}") from None
    if not all(0 <= beta < 1 for beta in pair):
        raise ValueError(f"betas must be at least 0 and below 1, got {list(pair)}")
    object.__setattr__(optimizer, "betas", pair)
    if not 0 < optimizer.eps <= 1e6:
        raise ValueError(f"eps must be above 0 and at most 1e6, got {optimizer.eps}")


def _convert_numbers(optimizer: Any, *names: str) -> None:
    for name in names:
        try:
            value = float(getattr(optimizer, name))
        except (TypeError, ValueError):
            raise ValueError(f"{name} must be a number, got {getattr(optimizer, name)!r}") from None
        object.__setattr__(optimizer, name, value)
