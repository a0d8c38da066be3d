"""Several clients at once: a stack (C, P) of parameters through `torch.func`, for models too small to keep a core busy.

Clients of unequal sizes are padded and every example carries its weight, 1/b in a batch of b and 0 where it is padding;
a client that has done its K_i steps stands still. So each row moves as the client would alone, to rounding.
"""

from typing import Any, NamedTuple, final

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from fedcm.core.algorithm import Algorithm, Gradient, LocalRun, Vector
from fedcm.core.losses import Loss, example_losses
from fedcm.core.model_mode import uses_batch_statistics
from fedcm.core.problem import Problem
from fedcm.core.recorded import RecordedFunction
from fedcm.data.dataset import Examples
from fedcm.data.federated import Pick
from fedcm.errors import UserError
from fedcm.system.faults import describe_error

_SAME = 0.05  # of a gradient's norm: far above rounding, bfloat16's too, and far below what mixing examples does


class StackResult(NamedTuple):
    """A row of every field, and an entry of every list, for each client."""

    report: tuple
    kept: tuple
    steps: list[float]
    losses: list[float]


@final
class StackedProblem:
    """The same problem as a function of a stack of vectors."""

    def __init__(self, problem: Problem) -> None:
        reject_unstackable(problem)
        self._losses = _example_losses(problem)
        self.problem = problem
        named = [(name, p) for name, p in problem.model.named_parameters() if p.requires_grad]
        self._names = [name for name, _ in named]
        self._shapes = [p.shape for _, p in named]
        self._sizes = [p.numel() for _, p in named]
        self._gradient = RecordedFunction(vmap(grad_and_value(self._loss)))

    def _loss(self, params: Vector, x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        pieces = zip(self._names, params.split(self._sizes), self._shapes, strict=True)
        parameters = {name: piece.view(shape) for name, piece, shape in pieces}
        outputs = functional_call(self.problem.model, parameters, (x,))  # what does not train stays the model's own
        return (self._losses(outputs, y) * weights).sum()

    def at(self, params: Vector, examples: Examples, weights: Tensor) -> tuple[Vector, Tensor]:
        """Each client's own gradient (decay and clipping included) and loss, at its own parameters."""
        with self.problem.arithmetic():
            gradient, loss = self._gradient(params, *examples, weights)
        return self.problem.own(gradient, params), loss


def run_stacked_steps(
    algorithm: Algorithm[Any, Any, Any, Any],
    stacked: StackedProblem,
    sent: Any,
    kept: Any,
    *,
    pick: Pick,
    batches: tuple[Tensor, Tensor],
    sizes: Tensor,
    client_lr: float,
    step_decay: float,
) -> StackResult:
    """`client.work` for C clients, a row of everything for each. `batches` has the minibatches' indices (C, K, b) and
    weights; `pick` gives the examples at indices (C, n)."""
    indices, weights = batches[0], batches[1].to(sent.params)
    clients, steps = len(sizes), (weights[:, :, :1] > 0).sum(1).to(sent.params)
    start = sent.params.expand(clients, -1)
    params, total = start.clone(), torch.zeros_like(start, memory_format=torch.contiguous_format)
    losses = params.new_zeros(clients)
    together = int(steps.min())  # from here on some stand still
    with torch.no_grad():
        for k in range(indices.shape[1]):
            here = _Batch(stacked, pick(indices[:, k]), weights[:, k])
            direction = algorithm.direction(here, params, sent, kept)
            if step_decay:
                direction = direction.add(params, alpha=step_decay)
            if k >= together:
                direction = direction * (steps > k)
            total += direction
            torch.sub(start, total, alpha=client_lr, out=params)
            if here.loss is not None:
                losses += here.loss  # 0 for who stands still: all of its weights are
        run = LocalRun(
            start=start,
            end=params,
            direction_sum=total,
            steps=steps,
            client_lr=client_lr,
            full_gradient=_over_everything(stacked, pick, sizes),
        )
        report, after = algorithm.report(run, sent, kept)
    return StackResult(report, after, steps[:, 0].tolist(), (losses / steps[:, 0]).double().tolist())


def _over_everything(stacked: StackedProblem, pick: Pick, sizes: Tensor) -> Gradient:
    """The gradient over all of each client's data, those of unequal sizes padded with examples of weight 0."""

    def at(params: Vector) -> Vector:
        index = torch.arange(int(sizes.max())).expand(len(sizes), -1)
        there = index < sizes[:, None]
        return stacked.at(params, pick(index * there), there.to(params) / sizes.to(params)[:, None])[0]

    return at


@final
class _Batch:
    """One minibatch of every client as a gradient; remembers the losses where it was first asked."""

    def __init__(self, stacked: StackedProblem, examples: Examples, weights: Tensor) -> None:
        self.stacked, self.examples, self.weights = stacked, examples, weights
        self.loss: Tensor | None = None

    def __call__(self, params: Vector) -> Vector:
        gradient, loss = self.stacked.at(params, self.examples, self.weights)
        if self.loss is None:
            self.loss = loss
        return gradient


def _example_losses(problem: Problem) -> Loss:
    """The problem's loss example by example, which a stack needs."""
    losses = example_losses(problem.loss)
    if losses is None:
        raise UserError("clients can be stacked with cross-entropy or squared error only; set engine.stack = 1")
    return losses


def reject_unstackable(problem: Problem) -> None:
    """Refuse a loss or a model with which several clients cannot step at once."""
    _example_losses(problem)
    for name, module in problem.model.named_modules():
        if isinstance(module, nn.modules.dropout._DropoutNd) and module.training:
            raise UserError("a model with dropout cannot be stacked; set engine.stack = 1")
        if uses_batch_statistics(module):
            raise UserError(
                f"a model with statistics of each batch ({type(module).__name__} at {name or 'its root'!r}) cannot be "
                "stacked, because the examples that fill up a stack would enter them; set engine.stack = 1"
            )


def reject_other_in_stack(problem: Problem, data: Examples) -> None:
    """Refuse a model that takes another step in a stack than alone: tried on two clients of unequal sizes.

    Whatever a model of the user's own does across the examples of a batch shows here."""
    sizes = (3, 2)
    index = torch.arange(sizes[0], device=data.labels.device) % data.size
    some = Examples(data.features[index], data.labels[index])
    params, name = problem.initial(), type(problem.model).__name__
    weights = torch.zeros((2, 3), dtype=params.dtype, device=params.device)
    try:
        with torch.random.fork_rng(devices=[]):
            alone = []
            for row, size in enumerate(sizes):
                weights[row, :size] = 1 / size
                alone.append(problem.gradient(Examples(some.features[:size], some.labels[:size]))(params.clone()))
            padded = index * (weights > 0)
            both = Examples(some.features[padded], some.labels[padded])
            stacked = StackedProblem(problem).at(params.expand(2, -1).contiguous(), both, weights)[0]
    except Exception as error:
        if isinstance(error, UserError):
            raise
        raise UserError(
            f"the model {name} cannot be stacked; set engine.stack = 1 ({describe_error(error)})"
        ) from error
    largest = torch.stack(alone).norm(dim=1)
    if not ((stacked - torch.stack(alone)).norm(dim=1) <= _SAME * largest + 1e-6).all():
        raise UserError(
            f"the model {name} takes other steps in a stack of clients than alone, because an example's output depends "
            "on the others of its batch; set engine.stack = 1"
        )
