"""Several clients at once: a stack (C, P) of parameters through `torch.func`, for models too small to keep a core busy.

Clients of unequal sizes are padded and every example carries its weight, 1/b in a batch of b and 0 where it is padding;
a client that has done its K_i steps stands still. So each row moves as the client would alone, to rounding.
"""

from collections.abc import Callable, Sequence
from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from fedcm.algorithm import Algorithm, LocalRun, Vector
from fedcm.client import ClientResult
from fedcm.data.dataset import Examples
from fedcm.problem import Problem, squared_error
from fedcm.refusal import Refused

ExampleLosses = Callable[[Tensor, Tensor], Tensor]  # (outputs, labels) -> one loss an example


@final
class StackedProblem:
    """The same problem as a function of a stack of vectors."""

    def __init__(self, problem: Problem) -> None:
        refuse_unstackable(problem)
        self.problem = problem
        self._losses = _PER_EXAMPLE[problem.loss]
        named = [(name, p) for name, p in problem.model.named_parameters() if p.requires_grad]
        self._names = [name for name, _ in named]
        self._shapes = [p.shape for _, p in named]
        self._sizes = [p.numel() for _, p in named]
        self._fixed: dict[str, Tensor] = {n: p for n, p in problem.model.named_parameters() if not p.requires_grad}
        self._fixed.update(problem.model.named_buffers())
        self._gradient = vmap(grad_and_value(self._loss))

    def _loss(self, params: Vector, x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        pieces = zip(self._names, params.split(self._sizes), self._shapes, strict=True)
        parameters = {name: piece.view(shape) for name, piece, shape in pieces}
        outputs = functional_call(self.problem.model, (parameters, self._fixed), (x,))
        return (self._losses(outputs, y) * weights).sum()

    def at(self, params: Vector, x: Tensor, y: Tensor, weights: Tensor) -> tuple[Vector, Tensor]:
        """Each client's own gradient (decay and clipping included) and loss, at its own parameters."""
        gradient, loss = self._gradient(params, x, y, weights)
        return self.problem.own(gradient, params), loss


def work_stacked(
    algorithm: Algorithm[Any, Any, Any, Any],
    stacked: StackedProblem,
    sent: Any,
    kept: Sequence[Any],
    *,
    data: Sequence[Examples],
    batches: Sequence[Sequence[Tensor]],
    client_lr: float,
    step_decay: float = 0.0,
) -> list[ClientResult]:
    """`client.work` for several clients: `batches` has each client's minibatches as indices into its data."""
    clients, counts = len(data), [len(own) for own in batches]
    x, y, everything = _padded(data)
    rows = torch.arange(clients)[:, None]
    states = type(kept[0])(*[torch.stack(fields) for fields in zip(*kept, strict=True)])
    params = sent.params.expand(clients, -1).clone()
    steps = params.new_tensor(counts)[:, None]
    losses = params.new_zeros(clients)
    with torch.no_grad():
        for k in range(max(counts)):
            index, weights = _indices([own[k] if k < len(own) else None for own in batches], params.dtype)
            here = _Batch(stacked, x[rows, index], y[rows, index], weights)
            direction = algorithm.direction(here, params, sent, states)
            if step_decay:
                direction = direction.add(params, alpha=step_decay)
            still = (steps > k).to(params.dtype)
            params.sub_(direction * still, alpha=client_lr)
            if here.loss is not None:
                losses += here.loss * still[:, 0]
        run = LocalRun(
            start=sent.params.expand(clients, -1),
            end=params,
            steps=steps,
            client_lr=client_lr,
            full_gradient=lambda at: stacked.at(at, x, y, everything)[0],
        )
        report, after = algorithm.report(run, sent, states)
    means = (losses / steps[:, 0]).double().tolist()
    rows = zip(_unstacked(report, clients), _unstacked(after, clients), counts, means, strict=True)
    return [ClientResult(*row) for row in rows]


@final
class _Batch:
    """One minibatch of every client as a gradient; remembers the losses where it was first asked."""

    def __init__(self, stacked: StackedProblem, x: Tensor, y: Tensor, weights: Tensor) -> None:
        self.stacked, self.x, self.y, self.weights = stacked, x, y, weights
        self.loss: Tensor | None = None

    def __call__(self, params: Vector) -> Vector:
        gradient, loss = self.stacked.at(params, self.x, self.y, self.weights)
        if self.loss is None:
            self.loss = loss
        return gradient


def _unstacked(message: Any, clients: int) -> list[Any]:
    """One message a client."""
    return [type(message)(*[field[c] for field in message]) for c in range(clients)]


def refuse_unstackable(problem: Problem) -> None:
    if problem.loss not in _PER_EXAMPLE:
        raise Refused("clients can be stacked with cross-entropy or squared error only; set engine.stack = 1")
    for module in problem.model.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            raise Refused("a model with dropout cannot be stacked; set engine.stack = 1")


def _padded(data: Sequence[Examples]) -> tuple[Tensor, Tensor, Tensor]:
    """(C, n, …) features, labels and weights of 1/n_i, padded with zeros to the largest client."""
    most = max(own.size for own in data)
    first = data[0]
    x = first.features.new_zeros((len(data), most, *first.features.shape[1:]))
    y = first.labels.new_zeros((len(data), most, *first.labels.shape[1:]))
    weights = torch.zeros((len(data), most), dtype=_float_of(first), device=x.device)
    for c, own in enumerate(data):
        x[c, : own.size], y[c, : own.size], weights[c, : own.size] = own.features, own.labels, 1.0 / own.size
    return x, y, weights


def _indices(batches: Sequence[Tensor | None], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    most = max(len(index) for index in batches if index is not None)
    indices = torch.zeros((len(batches), most), dtype=torch.int64)
    weights = torch.zeros((len(batches), most), dtype=dtype)
    for c, index in enumerate(batches):
        if index is not None:
            indices[c, : len(index)], weights[c, : len(index)] = index, 1.0 / len(index)
    return indices, weights


def _float_of(examples: Examples) -> torch.dtype:
    return examples.features.dtype if examples.features.is_floating_point() else torch.float32


def _cross_entropies(outputs: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(outputs, labels, reduction="none")


def _squared_errors(outputs: Tensor, labels: Tensor) -> Tensor:
    return (outputs.reshape(labels.shape) - labels).square()


_PER_EXAMPLE: dict[Any, ExampleLosses] = {F.cross_entropy: _cross_entropies, squared_error: _squared_errors}
