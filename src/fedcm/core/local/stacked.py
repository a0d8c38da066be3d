"""Local steps of several clients at once: a stack (C, P) of parameters through `torch.func`, for small models.

Clients of unequal sizes are padded. Every example has a weight: 1/b in a batch of b examples, 0 if it is padding. A
client that has taken its K_i steps no longer moves. So each row moves as that client would alone, up to rounding.
"""

from typing import Any, NamedTuple, final

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from fedcm.core.algorithm import Algorithm, Gradient, LocalRun, Step, Vector
from fedcm.core.local.optimizers import LocalOptimizer, OptimizedGradient
from fedcm.core.local.step_factors import StepFactors
from fedcm.core.local.traced_function import TracedFunction
from fedcm.core.losses import Loss, find_example_loss
from fedcm.core.model_mode import uses_batch_statistics
from fedcm.core.problem import Problem
from fedcm.data.dataset import Examples
from fedcm.data.federated import SelectExamples
from fedcm.errors import UserError
from fedcm.system.error_messages import describe_error

_TOLERANCE = 0.05  # of a gradient's norm: far above rounding, even to bfloat16, far below the effect of mixed examples


class StackResult(NamedTuple):
    """The result of a stack: each field of a tuple has a row, and each list an entry, for every client."""

    report: tuple
    client_state: tuple
    steps: list[float]
    losses: list[float]


@final
class StackedProblem:
    """A problem as a function of a stack of parameter vectors."""

    def __init__(self, problem: Problem) -> None:
        reject_unstackable(problem)
        self._losses = _require_example_loss(problem)
        self.problem = problem
        named = [(name, p) for name, p in problem.model.named_parameters() if p.requires_grad]
        self._names = [name for name, _ in named]
        self._shapes = [p.shape for _, p in named]
        self._sizes = [p.numel() for _, p in named]
        self._gradient = TracedFunction(vmap(grad_and_value(self._loss)))

    def _loss(self, params: Vector, x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        pieces = zip(self._names, params.split(self._sizes), self._shapes, strict=True)
        parameters = {name: piece.view(shape) for name, piece, shape in pieces}
        outputs = functional_call(self.problem.model, parameters, (x,))  # frozen parameters are the model's own
        return (self._losses(outputs, y) * weights).sum()

    def compute_gradient(self, params: Vector, examples: Examples, weights: Tensor) -> tuple[Vector, Tensor]:
        """Return each client's gradient, with weight decay and clipping, and its loss, at its own parameters."""
        with self.problem.autocast():
            gradient, loss = self._gradient(params, *examples, weights)
        return self.problem.adjust_gradient(gradient, params), loss


def run_stacked_steps(
    algorithm: Algorithm[Any, Any, Any, Any],
    stacked: StackedProblem,
    sent: Any,
    kept: Any,
    *,
    pick: SelectExamples,
    batches: tuple[Tensor, Tensor],
    sizes: Tensor,
    client_lr: float,
    step_decay: float,
    step_factors: StepFactors | None = None,
    optimizer: LocalOptimizer | None = None,
) -> StackResult:
    """Take the local steps of C clients; as `run_local_steps`, with one row for each client.

    Args:
        pick: Returns the examples at indices (C, n).
        batches: The indices (C, K, b) of the minibatches, and their weights.
        sizes: The number of examples of each client.
        step_decay: λ_step, weight decay that is added to the direction.
        step_factors: The factors f_k; by default 1.
        optimizer: Maps the gradients of the minibatches before the algorithm sees them; by default none.
    """
    indices, weights = batches[0], batches[1].to(sent.params)
    clients, steps = len(sizes), (weights[:, :, :1] > 0).sum(1).to(sent.params)
    losses = sent.params.new_zeros(clients)
    common_steps = int(steps.min())  # after these, some clients no longer move
    factors, effective_steps = (None, steps) if step_factors is None else step_factors.stack(steps)
    with torch.no_grad():
        full_gradient = _make_full_gradient(stacked, pick, sizes)
        start, local = algorithm.start(sent, kept).expand(clients, -1), algorithm.init_local(full_gradient, sent, kept)
        params, total = start.clone(), torch.zeros_like(start, memory_format=torch.contiguous_format)
        state = optimizer.init(start) if optimizer is not None else None
        for k in range(indices.shape[1]):
            gradient = _StackedBatchGradient(stacked, pick(indices[:, k]), weights[:, k])
            rate = client_lr if factors is None else client_lr * factors[:, k : k + 1]
            step = Step(k, steps, rate, stacked.problem.shapes)
            optimized = OptimizedGradient(optimizer, gradient, state, k) if optimizer is not None else None
            direction, after = algorithm.step(optimized or gradient, params, sent, kept, local, step)
            if step_decay:
                direction = direction.add(params, alpha=step_decay)
            if k >= common_steps:
                moves = steps > k
                direction = torch.where(moves, direction, 0.0)  # not a product: a direction of no examples may be nan
                after = _select_moving(moves, after, local)
            if optimized is not None:
                state = optimized.state if k < common_steps else _select_moving(steps > k, optimized.state, state)
            local = after
            total += direction if factors is None else direction * factors[:, k : k + 1]
            torch.sub(start, total, alpha=client_lr, out=params)
            if gradient.loss is not None:
                losses += gradient.loss  # 0 for clients that no longer move, because all their weights are 0
        run = LocalRun(
            start=start,
            end=params,
            direction_sum=total,
            steps=effective_steps,
            client_lr=client_lr,
            full_gradient=full_gradient,
            local=local,
        )
        report, kept = algorithm.report(run, sent, kept)
    return StackResult(report, kept, steps[:, 0].tolist(), (losses / steps[:, 0]).double().tolist())


def _select_moving(moves: Tensor, after: Any, before: Any) -> Any:
    """Return the state `after` a step for the clients that move, (C, 1), and the state `before` for the others."""
    return type(after)(*[_select_rows(moves, new, old) for new, old in zip(after, before, strict=True)])


def _select_rows(moves: Tensor, new: Tensor, old: Tensor) -> Tensor:
    """Return the rows of `new` for the clients that move, (C, 1), and of `old` for the others."""
    if new is old:  # a field that no client changes may have no rows
        return new
    return torch.where(moves.view(-1, *[1] * (new.dim() - 1)), new, old)


def _make_full_gradient(stacked: StackedProblem, pick: SelectExamples, sizes: Tensor) -> Gradient:
    """Return the gradient over all data of each client, padded with examples of weight 0."""

    def full_gradient(params: Vector) -> Vector:
        params = params.expand(len(sizes), -1)  # all clients may ask for the gradient at the model that was sent
        index = torch.arange(int(sizes.max())).expand(len(sizes), -1)
        is_example = index < sizes[:, None]
        weights = is_example.to(params) / sizes.to(params)[:, None]
        return stacked.compute_gradient(params, pick(index * is_example), weights)[0]

    return full_gradient


@final
class _StackedBatchGradient:
    """The gradients of one minibatch per client as a function of the parameters.

    `loss` has the losses at the parameters of the first call.
    """

    def __init__(self, stacked: StackedProblem, examples: Examples, weights: Tensor) -> None:
        self.stacked, self.examples, self.weights = stacked, examples, weights
        self.loss: Tensor | None = None

    def __call__(self, params: Vector) -> Vector:
        params = params.expand(len(self.weights), -1)
        gradient, loss = self.stacked.compute_gradient(params, self.examples, self.weights)
        if self.loss is None:
            self.loss = loss
        return gradient


def _require_example_loss(problem: Problem) -> Loss:
    losses = find_example_loss(problem.loss)
    if losses is None:
        raise UserError("clients can be stacked with cross-entropy or squared error only; set engine.stack = 1")
    return losses


def reject_unstackable(problem: Problem) -> None:
    """Raise UserError if the loss or a module of the model rules out training several clients at once."""
    _require_example_loss(problem)
    for name, module in problem.model.named_modules():
        if isinstance(module, nn.modules.dropout._DropoutNd) and module.training:
            raise UserError("a model with dropout cannot be stacked; set engine.stack = 1")
        if uses_batch_statistics(module):
            raise UserError(
                f"a model that uses the statistics of each batch ({type(module).__name__} at {name or 'its root'!r}) "
                "cannot be stacked, because the padding of a stack would change them; set engine.stack = 1"
            )


def reject_batch_dependent_model(problem: Problem, data: Examples) -> None:
    """Raise UserError if the model takes a different step in a stack than alone.

    One step of two clients of unequal sizes is compared. This finds models of the user's own in which the examples of a
    batch influence each other.
    """
    sizes = (3, 2)
    index = torch.arange(sizes[0], device=data.device) % data.size
    examples = data.select(index)
    params, name = problem.initial_params, type(problem.model).__name__
    weights = torch.zeros((2, 3), dtype=params.dtype, device=params.device)
    try:
        with torch.random.fork_rng(devices=[]):
            alone = []
            for row, size in enumerate(sizes):
                weights[row, :size] = 1 / size
                alone.append(
                    problem.gradient(Examples(examples.features[:size], examples.labels[:size]))(params.clone())
                )
            padded = index * (weights > 0)
            padded_examples = Examples(examples.features[padded], examples.labels[padded])
            stack = params.expand(2, -1).contiguous()
            stacked = StackedProblem(problem).compute_gradient(stack, padded_examples, weights)[0]
    except Exception as error:
        if isinstance(error, UserError):
            raise
        raise UserError(
            f"the model {name} cannot be stacked; set engine.stack = 1 ({describe_error(error)})"
        ) from error
    norms = torch.stack(alone).norm(dim=1)
    if not ((stacked - torch.stack(alone)).norm(dim=1) <= _TOLERANCE * norms + 1e-6).all():
        raise UserError(
            f"the model {name} takes different steps in a stack of clients than alone, because the output for an "
            "example depends on the other examples of its batch; set engine.stack = 1"
        )
