"""The local steps of a client's personal parameters, which it trains and keeps for itself."""

from typing import final

from fedcm.core.algorithm import Vector
from fedcm.core.local.optimizers import LocalOptimizer


@final
class PersonalSteps:
    """Takes a step along the personal part of each minibatch gradient; no term of an algorithm is added.

        p ← p − η_l·f_k·(u + λ_step·p),  u = the gradient of the minibatch, or what a local optimiser makes of it

    Attributes:
        params: The personal parameters. They change in place, because the model's parameters are views of them.
    """

    def __init__(self, params: Vector, optimizer: LocalOptimizer | None = None, step_decay: float = 0.0) -> None:
        self.params = params
        self._optimizer = optimizer
        self._state = optimizer.init(params) if optimizer is not None else None
        self._step_decay = step_decay

    def take(self, gradient: Vector, rate: float, index: int) -> None:
        """Take one step.

        Args:
            gradient: The personal part of a minibatch gradient.
            rate: The learning rate of this step.
            index: The index of the step, from 0.
        """
        direction = gradient
        if self._optimizer is not None:
            direction, self._state = self._optimizer.transform(gradient, self.params, self._state, index)
        if self._step_decay:
            direction = direction.add(self.params, alpha=self._step_decay)
        self.params.sub_(direction, alpha=rate)
