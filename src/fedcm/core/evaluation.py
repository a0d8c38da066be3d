"""Loss and metrics on the test data and the validation data.

Each set is evaluated in pieces of fixed size, so that the result has the same bits on any number of workers.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from fedcm.core.algorithm import Vector
from fedcm.core.losses import get_model_loss, get_scores
from fedcm.core.model_mode import eval_mode
from fedcm.core.problem import Problem
from fedcm.core.scoring.metric_set import DEFAULT_METRICS, MetricSet
from fedcm.core.scoring.summed import Fraction
from fedcm.data.dataset import Examples, count_scored_labels
from fedcm.data.federated import FederatedData
from fedcm.data.structures.tree import map_leaves
from fedcm.errors import UserError
from fedcm.rng import Purpose, make_torch_seed
from fedcm.system.error_messages import note_on_error

PIECE = 500  # examples; a constant, because the last bits of the loss depend on it


EvaluatedSet = Literal["test", "validation"]
EVALUATED_SETS: tuple[EvaluatedSet, ...] = ("test", "validation")


class Tally(NamedTuple):
    """The result on one piece of a set."""

    weight: int  # the examples, or all labels that count if an example has several class numbers
    loss: float  # the mean loss times the weight
    fractions: tuple[Fraction, ...]  # of the metrics that are sums
    outputs: Any = None  # outputs and labels on the CPU, if a metric needs those of the whole set
    labels: Any = None


class Score(NamedTuple):
    """The result on a whole set."""

    loss: float
    metrics: Mapping[str, float | None]  # by name; None where a metric is not defined

    @property
    def accuracy(self) -> float | None:
        """The accuracy; None if it is not among the metrics, or the labels are not classes."""
        return self.metrics.get("accuracy")

    def to_dict(self) -> dict[str, float | None]:
        """Return the loss and the metrics by name."""
        return {"loss": self.loss, **self.metrics}


def count_examples(data: FederatedData, which: EvaluatedSet) -> int:
    """Return the number of examples of a set."""
    return data.test_size if which == "test" else data.validation_size


def list_pieces(data: FederatedData, which: EvaluatedSet = "test") -> range:
    """Return the index of the first example of every piece of a set."""
    return range(0, count_examples(data, which), PIECE)


def read_piece(data: FederatedData, which: EvaluatedSet, start: int) -> Examples:
    """Return the piece of a set that begins at example `start`."""
    stop = min(start + PIECE, count_examples(data, which))
    return data.test_slice(start, stop) if which == "test" else data.validation_slice(start, stop)


@contextmanager
def evaluation_mode(problem: Problem, params: Vector, start: int = 0) -> Iterator[nn.Module]:
    """Give the model with these parameters in eval mode, without gradients.

    Random numbers that the model draws inside this context are a function of `start`.
    """
    with eval_mode(problem.bind(params)) as model, torch.no_grad(), torch.random.fork_rng(devices=[]):
        problem.reseed(make_torch_seed(0, Purpose.EVALUATION, client=start))
        with problem.autocast():
            yield model


def tally_piece(
    problem: Problem,
    params: Vector,
    data: FederatedData,
    start: int,
    which: EvaluatedSet = "test",
    metrics: MetricSet = DEFAULT_METRICS,
) -> Tally:
    """Evaluate the piece of a set that begins at example `start`."""
    with evaluation_mode(problem, params, start) as model:
        return tally_examples(problem, model, read_piece(data, which, start), metrics)


def tally_examples(
    problem: Problem, model: nn.Module, examples: Examples, metrics: MetricSet = DEFAULT_METRICS
) -> Tally:
    """Evaluate a model from `evaluation_mode` on these examples."""
    batch = problem.collate(examples)
    labels, weight = batch.labels, count_scored_labels(batch.labels)
    with note_on_error("in the model"):
        outputs = problem.call(model, batch)
    with note_on_error("in the loss"):
        loss = problem.loss(outputs, labels).item() * weight
    scores = get_scores(outputs)
    if _may_shift_labels(problem, scores):
        scores = None
    with note_on_error("in a metric"):
        tally = Tally(weight, loss, metrics.count(scores, labels, loss))
    return tally._replace(outputs=to_cpu(scores), labels=to_cpu(labels)) if metrics.whole else tally


def _may_shift_labels(problem: Problem, scores: Any) -> bool:
    """Return whether the model compares the outputs of each position with labels of another, as language models do."""
    return problem.loss is get_model_loss and isinstance(scores, Tensor) and scores.dim() > 2


def to_cpu(tree: Any) -> Any:
    """Return tensors on the CPU: floats of 16 bits as float32, and other types unchanged."""

    def move(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        return leaf.cpu().float() if leaf.is_floating_point() and leaf.element_size() < 4 else leaf.cpu()

    return map_leaves(move, tree)


def join_rows(pieces: Sequence[Any]) -> Tensor:
    """Return the rows of all pieces as one tensor on the CPU.

    Raises:
        UserError: If a piece is not one tensor, or the rows differ in shape.
    """
    if not all(isinstance(piece, Tensor) for piece in pieces):
        raise UserError("metrics over a whole set need outputs and labels of one tensor each")
    if len({piece.shape[1:] for piece in pieces}) > 1:
        raise UserError("metrics over a whole set need outputs and labels of one shape, and their lengths differ")
    return torch.cat([piece.cpu() for piece in pieces])


def compute_whole_metrics(metrics: MetricSet, outputs: Any, labels: Any) -> dict[str, float | None]:
    """Return the metrics that need all outputs and labels, by name."""
    values = {}
    for one in metrics.whole:
        with note_on_error(f"in the metric {one.name!r}"), torch.no_grad():
            values[one.name] = one.compute(outputs, labels)
    return values


def combine_tallies(tallies: Iterable[Tally], metrics: MetricSet = DEFAULT_METRICS) -> Score:
    """Return the result on all pieces; its bits do not depend on their order, unless a metric needs all outputs."""
    tallies, whole = list(tallies), {}
    if metrics.whole:
        outputs, labels = (join_rows([getattr(one, name) for one in tallies]) for name in ("outputs", "labels"))
        whole = compute_whole_metrics(metrics, outputs, labels)
    loss = math.fsum(one.loss for one in tallies) / sum(one.weight for one in tallies)
    return Score(loss, metrics.combine([one.fractions for one in tallies], whole))
