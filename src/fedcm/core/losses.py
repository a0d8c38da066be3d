"""The two default losses, each as a mean over a batch and per example.

Labels reach a loss in the shape in which they were given: (b,) or (b, …). The loss of an example is the mean over its
labels, so the mean over a batch is the mean over all labels in it, as in torch.
"""

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor

Loss = Callable[[Tensor, Tensor], Tensor]  # (outputs, labels) -> mean loss, a scalar


def cross_entropy(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross-entropy of outputs (b, classes, …) for labels (b, …) that are class numbers.

    Labels (b, 1) are accepted for outputs (b, classes) too.
    """
    return F.cross_entropy(outputs, _reshape_labels(outputs, labels))


def squared_error(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return the mean squared error; outputs and labels have the same shape up to axes of length 1."""
    return F.mse_loss(_reshape_outputs(outputs, labels), labels)


def find_example_loss(loss: Loss) -> Loss | None:
    """Return the function (outputs, labels) -> one loss per example; None if it is not known for this loss."""
    return _PER_EXAMPLE.get(loss)


def is_one_hot(labels: Tensor) -> bool:
    """Return whether every row of labels (n, D > 1) is a single 1 among 0s."""
    if labels.dim() != 2 or labels.shape[1] < 2:
        return False
    return bool(((labels == 0) | (labels == 1)).all() and (labels.sum(1) == 1).all())


def _cross_entropy_per_example(outputs: Tensor, labels: Tensor) -> Tensor:
    labels = _reshape_labels(outputs, labels)
    if outputs.dim() > 2:
        return _average_per_example(F.cross_entropy(outputs, labels, reduction="none"))
    return outputs.logsumexp(-1) - outputs.gather(-1, labels[:, None])[:, 0]  # faster under vmap than F.cross_entropy


def _squared_error_per_example(outputs: Tensor, labels: Tensor) -> Tensor:
    return _average_per_example((_reshape_outputs(outputs, labels) - labels).square())


_PER_EXAMPLE: dict[Any, Loss] = {
    cross_entropy: _cross_entropy_per_example,
    F.cross_entropy: _cross_entropy_per_example,
    squared_error: _squared_error_per_example,
}


def _average_per_example(losses: Tensor) -> Tensor:
    return losses if losses.dim() == 1 else losses.flatten(1).mean(1)


def _reshape_labels(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return the labels in the shape that torch's cross-entropy requires."""
    if labels.shape[1:] == outputs.shape[2:]:
        return labels
    if outputs.dim() == 2 and labels.shape[1:] == (1,):
        return labels[:, 0]
    raise ValueError(
        f"cross-entropy needs outputs (b, classes, …) for labels (b, …), got outputs {tuple(outputs.shape)} and labels "
        f"{tuple(labels.shape)}" + ("; for one-hot labels give their argmax" if labels.dim() == 2 else "")
    )


def _reshape_outputs(outputs: Tensor, labels: Tensor) -> Tensor:
    if _list_long_axes(outputs) != _list_long_axes(labels):
        raise ValueError(
            f"squared error needs outputs of the labels' shape, got outputs {tuple(outputs.shape)} and labels "
            f"{tuple(labels.shape)}"
        )
    return outputs.reshape(labels.shape)


def _list_long_axes(tensor: Tensor) -> tuple[int, list[int]]:
    return tensor.shape[0], [length for length in tensor.shape[1:] if length != 1]
