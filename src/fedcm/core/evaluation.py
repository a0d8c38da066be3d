"""Loss and accuracy on the test data.

The test set is evaluated in pieces of fixed size, so that the result has the same bits on any number of workers.
"""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fedcm.core.algorithm import Vector
from fedcm.core.losses import get_model_loss, get_scores
from fedcm.core.model_mode import eval_mode
from fedcm.core.problem import Problem
from fedcm.data.dataset import Examples, count_scored_labels
from fedcm.data.federated import FederatedData
from fedcm.rng import Purpose, make_torch_seed
from fedcm.system.error_messages import note_on_error

PIECE = 500  # examples; a constant, because the last bits of the loss depend on it


class Tally(NamedTuple):
    """The result on one piece of the test set."""

    weight: int  # the examples, or all labels that count if an example has several class numbers
    loss: float  # the mean loss times the weight
    labels: int  # the labels that count
    correct: int | None  # correctly predicted labels; None if the labels are not classes


class Score(NamedTuple):
    """The result on the whole test set."""

    loss: float
    accuracy: float | None  # None if the labels are not classes


def list_pieces(data: FederatedData) -> range:
    """Return the index of the first example of every piece of the test set."""
    return range(0, data.test_size, PIECE)


@contextmanager
def evaluation_mode(problem: Problem, params: Vector, start: int = 0) -> Iterator[nn.Module]:
    """Give the model with these parameters in eval mode, without gradients.

    Random numbers that the model draws inside this context are a function of `start`.
    """
    with eval_mode(problem.bind(params)) as model, torch.no_grad(), torch.random.fork_rng(devices=[]):
        problem.reseed(make_torch_seed(0, Purpose.EVALUATION, client=start))
        with problem.autocast():
            yield model


def tally_piece(problem: Problem, params: Vector, data: FederatedData, start: int) -> Tally:
    """Evaluate the piece of the test set that begins at example `start`."""
    with evaluation_mode(problem, params, start) as model:
        return tally_examples(problem, model, data.test_slice(start, min(start + PIECE, data.test_size)))


def tally_examples(problem: Problem, model: nn.Module, examples: Examples) -> Tally:
    """Evaluate a model from `evaluation_mode` on these examples."""
    batch = problem.collate(examples)
    labels, weight = batch.labels, count_scored_labels(batch.labels)
    with note_on_error("in the model"):
        outputs = problem.call(model, batch)
    with note_on_error("in the loss"):
        loss = problem.loss(outputs, labels).item() * weight
    scores = get_scores(outputs)
    if not isinstance(labels, Tensor) or labels.is_floating_point() or _may_shift_labels(problem, scores):
        return Tally(weight, loss, weight, None)
    return Tally(weight, loss, weight, _count_correct(scores, labels))


def _may_shift_labels(problem: Problem, scores: Any) -> bool:
    """Return whether the model compares the outputs of each position with labels of another, as language models do."""
    return problem.loss is get_model_loss and isinstance(scores, Tensor) and scores.dim() > 2


def _count_correct(outputs: Any, labels: Tensor) -> int | None:
    """Count the labels for which the outputs (b, classes, …) are highest; an ignored label is never correct.

    Return None if the outputs are not scores of two or more classes.
    """
    if not isinstance(outputs, Tensor) or outputs.dim() < 2 or outputs.shape[1] < 2:
        return None
    if outputs.dim() == 2 and labels.shape[1:] == (1,):
        labels = labels[:, 0]
    return int((outputs.argmax(1) == labels).sum()) if labels.shape[1:] == outputs.shape[2:] else None


def combine_tallies(tallies: Iterable[Tally]) -> Score:
    """Return the result on all pieces; its bits do not depend on their order."""
    tallies = list(tallies)
    weight = sum(t.weight for t in tallies)
    counted = [t.correct for t in tallies if t.correct is not None]
    accuracy = sum(counted) / sum(t.labels for t in tallies) if len(counted) == len(tallies) else None
    return Score(math.fsum(t.loss for t in tallies) / weight, accuracy)
