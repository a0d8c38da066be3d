"""A torch model and loss as functions of one flat vector.

The model's parameters are views of the vector that it was last called with, so a step on the vector is a step of the
model and nothing is copied in or out. What a client does to its own gradient happens here, before an algorithm sees it:

    g = ∇ loss(minibatch) + λ·params      weight decay "in the loss"
    g ← g · min(1, clip / ‖g‖)            clipping, where asked for

Weight decay "in the step" is added to the direction by the local loop instead. Every module of the model stays in the
mode, training or eval, in which it comes.
"""

import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, final

import torch
from torch import Tensor, nn

from fedcm.core.algorithm import Vector
from fedcm.core.losses import Loss, cross_entropy
from fedcm.core.model_mode import reject_updated_statistics
from fedcm.data.dataset import Examples
from fedcm.errors import UserError
from fedcm.system.faults import add_note

_PIECE = 500  # examples at a time where all of a client's data count


@final
class Problem:
    """
    >>> problem = Problem(nn.Linear(2, 3))
    >>> problem.size
    9
    >>> batch = Examples(torch.ones(4, 2), torch.tensor([0, 1, 2, 0]))
    >>> problem.gradient(batch)(problem.initial()).shape
    torch.Size([9])
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss = cross_entropy,
        *,
        weight_decay: float = 0.0,
        clip: float | None = None,
        autocast: bool = False,
    ) -> None:
        reject_lazy(model)
        reject_updated_statistics(model)
        self.model = model
        self.loss = loss
        self.weight_decay = weight_decay  # λ in the loss
        self.clip = clip  # greatest norm of a client's own gradient
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        if not self._parameters:
            raise UserError(f"the model {type(model).__name__} must have parameters to train, and has none")
        self._shapes = [p.shape for p in self._parameters]
        self._sizes = [p.numel() for p in self._parameters]
        self.size = sum(self._sizes)
        dtypes = {p.dtype for p in self._parameters}
        if len(dtypes) > 1:
            raise UserError(
                f"the model's parameters must share one dtype, got {sorted(map(str, dtypes))}; use model.float()"
            )
        self.dtype = dtypes.pop()
        self.device = self._parameters[0].device
        self._initial = torch.cat([p.detach().reshape(-1) for p in self._parameters])
        self._bound: Vector | None = None
        self._half = autocast
        self._compiled: Callable[[Tensor], Tensor] | None = None
        self._compiled_size: int | None = None

    def initial(self) -> Vector:
        """The parameters that the model came with."""
        return self._initial.clone()

    def constants_sha256(self) -> str | None:
        """Of what the model has beside the parameters that train: frozen parameters and buffers. None if there are
        none."""
        frozen = {name: p.detach() for name, p in self.model.named_parameters() if not p.requires_grad}
        constants = frozen | dict(self.model.named_buffers())
        digest = hashlib.sha256()
        for name, tensor in constants.items():
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
            digest.update(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest() if constants else None

    def bind(self, params: Vector) -> nn.Module:
        """The model with `params` for its parameters: views of that very vector."""
        if params is not self._bound:
            for parameter, piece, shape in zip(self._parameters, params.split(self._sizes), self._shapes, strict=True):
                parameter.data = piece.view(shape)
            self._bound = params
        return self.model

    def compile_for(self, batch_size: int | None) -> None:
        """Full batches run compiled from now on, others as they are: what a batch runs as depends on its size alone,
        and so on no worker's history. None: nothing does."""
        self._compiled = None if batch_size is None else torch.compile(self.model, dynamic=False)
        self._compiled_size = batch_size

    def arithmetic(self) -> AbstractContextManager[Any]:
        """Where the model and its loss are computed: in bfloat16, if asked for, as torch's autocast does it."""
        return torch.autocast(self.device.type, torch.bfloat16) if self._half else nullcontext()

    def reseed(self, seed: int) -> None:
        """For chance inside the model. Not `torch.manual_seed`: without CUDA it queues every call, with its stack."""
        torch.default_generator.manual_seed(seed)
        if self.device.type != "cpu":
            torch.get_device_module(self.device).manual_seed(seed)

    def gradient(self, batch: Examples) -> "BatchGradient":
        return BatchGradient(self, batch)

    def full_gradient(self, data: Examples) -> Callable[[Vector], Vector]:
        """The gradient over all of a client's data."""
        return lambda params: self.full_gradient_and_loss(params, data)[0]

    def full_gradient_and_loss(self, params: Vector, data: Examples) -> tuple[Vector, float]:
        """Over all of a client's data, a piece at a time; the loss as it is reported of minibatches, without decay."""
        total, losses = torch.zeros_like(params), 0.0
        for start in range(0, data.size, _PIECE):
            piece = Examples(data.features[start : start + _PIECE], data.labels[start : start + _PIECE])
            gradient, loss = self._loss_gradient(params, piece)
            total.add_(gradient, alpha=piece.size / data.size)
            losses += loss.item() * piece.size
        return self.own(total, params), losses / data.size

    def _loss_gradient(self, params: Vector, batch: Examples) -> tuple[Vector, Tensor]:
        model = self.bind(params)
        run = self._compiled if self._compiled is not None and batch.size == self._compiled_size else model
        doing = "in the model"
        try:
            with torch.enable_grad(), self.arithmetic():
                outputs = run(batch.features)
                doing = "in the loss"
                loss = self.loss(outputs, batch.labels)
                doing = "in the backward pass"
                pieces = torch.autograd.grad(loss, self._parameters, materialize_grads=True)
        except Exception as error:
            add_note(error, doing)
            raise
        return torch.cat([piece.reshape(-1) for piece in pieces]), loss.detach()

    def own(self, gradient: Vector, params: Vector) -> Vector:
        """Decay and clipping, in place on a gradient (or a stack of them) that nobody else holds."""
        if self.weight_decay:
            gradient.add_(params, alpha=self.weight_decay)
        if self.clip is not None:
            norm = torch.linalg.vector_norm(gradient, dim=-1, keepdim=True)
            gradient.mul_((self.clip / norm).clamp(max=1.0))
        return gradient


@final
class BatchGradient:
    """The gradient of one minibatch as a function of the parameters; remembers the loss where it was first asked."""

    __slots__ = ("batch", "loss", "problem")

    def __init__(self, problem: Problem, batch: Examples) -> None:
        self.problem = problem
        self.batch = batch
        self.loss: Tensor | None = None

    def __call__(self, params: Vector) -> Vector:
        gradient, loss = self.problem._loss_gradient(params, self.batch)
        if self.loss is None:
            self.loss = loss
        return self.problem.own(gradient, params)


def reject_lazy(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if any(isinstance(p, nn.parameter.UninitializedParameter) for p in module.parameters(recurse=False)):
            raise UserError(
                f"the model must know its shapes, got the lazy {type(module).__name__} at {name!r}; pass one batch "
                "through it first"
            )
