"""Local optimisers by torch.optim, as an independent reference: what one step moves by, per unit of learning rate."""

from collections.abc import Sequence
from typing import Any

import torch
from reference import Batch, World
from torch import Tensor

TORCH = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


def make_torch_optimizer(table: dict[str, Any], params: Any, lr: float) -> torch.optim.Optimizer:
    """Make torch's optimiser from a TOML table."""
    settings = {key: tuple(value) if key == "betas" else value for key, value in table.items() if key != "name"}
    return TORCH[table["name"]](params, lr=lr, **settings)


class TorchSteps:
    """The local steps of one client in one round. Calls with one minibatch are one step; the last one counts."""

    def __init__(self, table: dict[str, Any]) -> None:
        self.table = table
        self.begin([])

    def begin(self, batches: list[Any]) -> list[Any]:
        """Begin a round with fresh state; return the minibatches."""
        self._batch: Any = None
        self._before: dict[str, Any] = {}
        self._after: dict[str, Any] = {}
        return batches

    def move(self, theta: Tensor, gradient: Tensor, batch: Any) -> Tensor:
        """Return what the optimiser moves by at learning rate 1."""
        if batch is not self._batch:
            self._batch, self._before = batch, self._after
        parameter = theta.detach().clone().requires_grad_()
        optimizer = make_torch_optimizer(self.table, [parameter], lr=1.0)
        optimizer.state[parameter] |= {
            key: own.clone() if isinstance(own, Tensor) else own for key, own in self._before.items()
        }
        parameter.grad = gradient.clone()
        optimizer.step()
        self._after = dict(optimizer.state[parameter])
        return theta.detach() - parameter.detach()


class OptimizedWorld(World):
    """The surroundings of pseudocode in which every gradient of a step is what an optimiser moves by."""

    steps: TorchSteps

    def gradient(self, theta: Tensor, batch: Batch | Sequence[Tensor]) -> Tensor:
        """Return u in place of the gradient."""
        return self.steps.move(theta, super().gradient(theta, batch), batch)  # pyright: ignore[reportArgumentType]
