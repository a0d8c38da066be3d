"""The default losses: cross-entropy and squared error, each as a mean over a batch and per example; the model's own.

Labels reach a loss in the shape in which they were given: (b,) or (b, …). The loss of an example is the mean over its
labels, so the mean over a batch is the mean over all labels in it, as in torch. Class numbers of -100 are ignored, as
in torch too.
"""

from collections.abc import Callable
from typing import Any, cast

import torch.nn.functional as F
from torch import Tensor

from fedcm.data.dataset import IGNORED
from fedcm.errors import UserError, suggest
from fedcm.system.imports import import_object

Loss = Callable[[Any, Any], Tensor]  # (outputs, labels) -> mean loss, a scalar


def get_scores(outputs: Any) -> Any:
    """Return the outputs of a model, or their `logits` if the model returns an object that has them."""
    logits = None if isinstance(outputs, Tensor) else getattr(outputs, "logits", None)
    return outputs if logits is None else logits


def get_model_loss(outputs: Any, labels: Any) -> Tensor:
    """Return the loss that the model itself has computed from labels that it was given: `outputs.loss`."""
    loss = getattr(outputs, "loss", None)
    if loss is None:
        raise ValueError(
            "a model that takes labels must return an object with a loss, got "
            f"{type(outputs).__name__} without one; give a loss of your own"
        )
    return loss


def cross_entropy(outputs: Any, labels: Tensor) -> Tensor:
    """Return the mean cross-entropy of outputs (b, classes, …) for labels (b, …) that are class numbers.

    Labels (b, 1) are accepted for outputs (b, classes) too. The outputs may be an object with `logits`.
    """
    outputs = get_scores(outputs)
    return F.cross_entropy(outputs, _reshape_labels(outputs, labels))


def squared_error(outputs: Any, labels: Tensor) -> Tensor:
    """Return the mean squared error; outputs and labels have the same shape up to axes of length 1.

    The outputs may be an object with `logits`.
    """
    return F.mse_loss(*_match_scored(outputs, labels))


def absolute_error(outputs: Any, labels: Tensor) -> Tensor:
    """Return the mean absolute error; outputs and labels have the same shape up to axes of length 1."""
    return F.l1_loss(*_match_scored(outputs, labels))


def binary_cross_entropy(outputs: Any, labels: Tensor) -> Tensor:
    """Return the mean binary cross-entropy for several yes-or-no labels per example.

    Args:
        outputs: Scores before the sigmoid, of the labels' shape up to axes of length 1.
        labels: 0 and 1, or probabilities.
    """
    return F.binary_cross_entropy_with_logits(*_match_scored(outputs, labels))


def find_example_loss(loss: Loss) -> Loss | None:
    """Return the function (outputs, labels) -> one loss per example; None if it is not known for this loss."""
    return _PER_EXAMPLE.get(loss)


def is_one_hot(labels: Any) -> bool:
    """Return whether every row of labels (n, D > 1) is a single 1 among 0s."""
    if not isinstance(labels, Tensor) or labels.dim() != 2 or labels.shape[1] < 2:
        return False
    return bool(((labels == 0) | (labels == 1)).all() and (labels.sum(1) == 1).all())


def _cross_entropy_per_example(outputs: Any, labels: Tensor) -> Tensor:
    outputs = get_scores(outputs)
    labels = _reshape_labels(outputs, labels)
    if outputs.dim() > 2:
        return _average_per_example(F.cross_entropy(outputs, labels, reduction="none"))
    return outputs.logsumexp(-1) - outputs.gather(-1, labels[:, None])[:, 0]  # faster under vmap than F.cross_entropy


def _squared_error_per_example(outputs: Any, labels: Tensor) -> Tensor:
    return _average_per_example((reshape_outputs(get_scores(outputs), labels) - labels).square())


def _absolute_error_per_example(outputs: Any, labels: Tensor) -> Tensor:
    return _average_per_example((reshape_outputs(get_scores(outputs), labels) - labels).abs())


def _binary_cross_entropy_per_example(outputs: Any, labels: Tensor) -> Tensor:
    scores = reshape_outputs(get_scores(outputs), labels)
    return _average_per_example(F.binary_cross_entropy_with_logits(scores, labels.to(scores), reduction="none"))


_PER_EXAMPLE: dict[Any, Loss] = {
    cross_entropy: _cross_entropy_per_example,
    F.cross_entropy: _cross_entropy_per_example,
    squared_error: _squared_error_per_example,
    absolute_error: _absolute_error_per_example,
    binary_cross_entropy: _binary_cross_entropy_per_example,
}

LIKE_LABELS = (squared_error, absolute_error, binary_cross_entropy)  # these need outputs of the labels' shape

LOSSES: dict[str, Loss] = {
    "cross_entropy": cross_entropy,
    "squared_error": squared_error,
    "absolute_error": absolute_error,
    "binary_cross_entropy": binary_cross_entropy,
    "model": get_model_loss,
}


def find_loss(name: str) -> Loss:
    """Return the loss of this name, or the user's own by `package.module:function`.

    Raises:
        UserError: If there is no such loss.
    """
    if name in LOSSES:
        return LOSSES[name]
    if ":" not in name:
        hint = suggest(name, LOSSES)
        raise UserError(f"there is no loss {name!r}; write your own as 'package.module:function'; {hint}")
    loss: Any = import_object(name)
    if not callable(loss):
        raise UserError(f"the loss {name!r} must be a function (outputs, labels), got {type(loss).__name__}")
    return cast(Loss, loss)


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


def _match_scored(outputs: Any, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return outputs and labels of one shape and dtype; of integer labels only those that are not ignored."""
    scores = reshape_outputs(get_scores(outputs), labels)
    if labels.is_floating_point():
        return scores, labels
    scored = labels != IGNORED
    return scores[scored], labels[scored].to(scores)


def reshape_outputs(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return the outputs in the shape of the labels, from which they may differ in axes of length 1."""
    if _list_long_axes(outputs) != _list_long_axes(labels):
        raise ValueError(
            f"this loss needs outputs of the labels' shape, got outputs {tuple(outputs.shape)} and labels "
            f"{tuple(labels.shape)}"
        )
    return outputs.reshape(labels.shape)


def _list_long_axes(tensor: Tensor) -> tuple[int, list[int]]:
    return tensor.shape[0], [length for length in tensor.shape[1:] if length != 1]
