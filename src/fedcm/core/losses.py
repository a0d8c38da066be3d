"""The two losses that training uses by default, each as a mean over a batch and example by example.

Labels reach a loss in the shape they were given: (b,) or (b, …). An example's loss is the mean over its labels, so the
mean over a batch is the mean over all labels in it, as in torch.
"""

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor

Loss = Callable[[Tensor, Tensor], Tensor]  # (outputs, labels) -> mean loss, a scalar


def cross_entropy(outputs: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy of outputs (b, classes, …) for labels (b, …) that are class numbers.

    Labels (b, 1) go with outputs (b, classes) too.
    """
    return F.cross_entropy(outputs, _class_numbers(outputs, labels))


def squared_error(outputs: Tensor, labels: Tensor) -> Tensor:
    """Mean squared error for labels that are numbers; outputs have the labels' shape, but for axes of length 1."""
    return F.mse_loss(_shaped_like(outputs, labels), labels)


def example_losses(loss: Loss) -> Loss | None:
    """The loss as a function (outputs, labels) -> one loss per example, for those losses that are known to have one."""
    return _PER_EXAMPLE.get(loss)


def is_one_hot(labels: Tensor) -> bool:
    """Whether every row of labels (n, D > 1) is a single 1 among 0s."""
    if labels.dim() != 2 or labels.shape[1] < 2:
        return False
    return bool(((labels == 0) | (labels == 1)).all() and (labels.sum(1) == 1).all())


def _cross_entropies(outputs: Tensor, labels: Tensor) -> Tensor:
    labels = _class_numbers(outputs, labels)
    if outputs.dim() > 2:
        return _mean_per_example(F.cross_entropy(outputs, labels, reduction="none"))
    return outputs.logsumexp(-1) - outputs.gather(-1, labels[:, None])[:, 0]  # vmap takes the other apart, slower


def _squared_errors(outputs: Tensor, labels: Tensor) -> Tensor:
    return _mean_per_example((_shaped_like(outputs, labels) - labels).square())


_PER_EXAMPLE: dict[Any, Loss] = {
    cross_entropy: _cross_entropies,
    F.cross_entropy: _cross_entropies,
    squared_error: _squared_errors,
}


def _mean_per_example(losses: Tensor) -> Tensor:
    return losses if losses.dim() == 1 else losses.flatten(1).mean(1)


def _class_numbers(outputs: Tensor, labels: Tensor) -> Tensor:
    """Labels in the shape that torch's cross-entropy takes."""
    if labels.shape[1:] == outputs.shape[2:]:
        return labels
    if outputs.dim() == 2 and labels.shape[1:] == (1,):
        return labels[:, 0]
    raise ValueError(
        f"cross-entropy needs outputs (b, classes, …) for labels (b, …), got outputs {tuple(outputs.shape)} and labels "
        f"{tuple(labels.shape)}" + ("; for one-hot labels give their argmax" if labels.dim() == 2 else "")
    )


def _shaped_like(outputs: Tensor, labels: Tensor) -> Tensor:
    if _long_axes(outputs) != _long_axes(labels):
        raise ValueError(
            f"squared error needs outputs of the labels' shape, got outputs {tuple(outputs.shape)} and labels "
            f"{tuple(labels.shape)}"
        )
    return outputs.reshape(labels.shape)


def _long_axes(tensor: Tensor) -> tuple[int, list[int]]:
    return tensor.shape[0], [length for length in tensor.shape[1:] if length != 1]
