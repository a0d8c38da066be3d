"""A torch model and loss as functions of one flat vector.

The model's parameters are views of the vector that it was last called with. A step on the vector is therefore a step of
the model, and nothing is copied. What a client does to its own gradient happens here, before an algorithm sees it:

    g = ∇ loss(minibatch) + λ·params      weight decay "in the loss"
    g ← g · min(1, clip / ‖g‖)            clipping, if requested

Weight decay "in the step" is added to the direction by the local loop instead. Every module of the model stays in the
mode, training or eval, in which it was given.

Personal parameters are not part of the vector: each client has its own. `bind_personal` puts those of one client into
the model, and every gradient of a minibatch has a personal part, which no algorithm sees.
"""

import hashlib
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from typing import Any, final

import torch
from torch import Tensor, nn

from fedcm.core.algorithm import Vector
from fedcm.core.losses import Loss, cross_entropy, get_model_loss
from fedcm.core.model_mode import reject_updated_statistics
from fedcm.data.dataset import Examples, count_scored_labels
from fedcm.data.structures.collate import Collate, pad_examples
from fedcm.errors import UserError
from fedcm.models.convolutions import guard_small_strided_convolutions
from fedcm.system.error_messages import add_note

_PIECE = 500  # examples at a time, for gradients over all data of a client


@final
class Problem:
    """A model and its loss.

    >>> problem = Problem(nn.Linear(2, 3))
    >>> problem.size
    9
    >>> batch = Examples(torch.ones(4, 2), torch.tensor([0, 1, 2, 0]))
    >>> problem.gradient(batch)(problem.initial_params).shape
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
        collate: Collate = pad_examples,
        personal: Collection[str] = (),
    ) -> None:
        reject_lazy_parameters(model)
        reject_updated_statistics(model)
        guard_small_strided_convolutions(model)
        self.model = model
        self.loss = loss
        self.collate = collate  # from selected examples to the batch that the model takes
        self._gives_labels = loss is get_model_loss
        self.weight_decay = weight_decay  # λ in the loss
        self.clip = clip  # largest norm of a client's gradient
        trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self._parameters = [p for name, p in trained.items() if name not in personal]
        self._personal = [p for name, p in trained.items() if name in personal]
        self.personal_names = tuple(name for name in trained if name in personal)  # in their order in a personal vector
        if not self._parameters:
            raise UserError(f"the model {type(model).__name__} must have parameters to train, but has none")
        self.shapes = tuple(p.shape for p in self._parameters)  # in their order in the flat vector
        self._sizes = [p.numel() for p in self._parameters]
        self.size = sum(self._sizes)
        self.personal_size = sum(p.numel() for p in self._personal)
        dtypes = {p.dtype for p in trained.values()}
        if len(dtypes) > 1:
            raise UserError(
                f"the model's parameters must share one dtype, got {sorted(map(str, dtypes))}; use model.float()"
            )
        self.dtype = dtypes.pop()
        self.device = self._parameters[0].device
        self._initial = torch.cat([p.detach().reshape(-1) for p in self._parameters])
        self._initial_personal = torch.cat([p.detach().reshape(-1) for p in self._personal] or [self._initial[:0]])
        self._bound_personal = self._initial_personal
        self._bound: Vector | None = None
        self._uses_bfloat16 = autocast
        self._compiled: Callable[[Tensor], Tensor] | None = None
        self._compiled_size: int | None = None

    @property
    def initial_params(self) -> Vector:
        """A copy of the parameters that the model was given with."""
        return self._initial.clone()

    @property
    def initial_personal(self) -> Vector:
        """A copy of the personal parameters that the model was given with; empty if all parameters are shared."""
        return self._initial_personal.clone()

    def hash_constants(self) -> str | None:
        """Return the SHA-256 of the frozen parameters, buffers and initial personal parameters; None without any."""
        frozen = {name: p.detach() for name, p in self.model.named_parameters() if not p.requires_grad}
        constants = frozen | dict(self.model.named_buffers())
        if self.personal_size:
            constants["personal"] = self._initial_personal
        digest = hashlib.sha256()
        for name, tensor in constants.items():
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
            digest.update(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest() if constants else None

    def bind(self, params: Vector) -> nn.Module:
        """Return the model with parameters that are views of `params`."""
        if params is not self._bound:
            for parameter, piece, shape in zip(self._parameters, params.split(self._sizes), self.shapes, strict=True):
                parameter.data = piece.view(shape)
            self._bound = params
        return self.model

    def bind_personal(self, personal: Vector) -> None:
        """Use personal parameters that are views of this vector, until another one is bound."""
        if personal is not self._bound_personal:
            sizes = [p.numel() for p in self._personal]
            for parameter, piece in zip(self._personal, personal.split(sizes), strict=True):
                parameter.data = piece.view(parameter.shape)
            self._bound_personal = personal

    def bind_initial_personal(self, params: Vector) -> nn.Module:
        """Return the model with these shared parameters and the initial personal ones, if there are any."""
        if self.personal_size:
            self.bind_personal(self._initial_personal)
        return self.bind(params)

    def call(self, model: Callable[..., Any], batch: Examples) -> Any:
        """Call the model on a batch: features in a tuple are its arguments, features in a dict are given by name.

        A model that computes its own loss gets the labels too.
        """
        features = batch.features
        if isinstance(features, Tensor):
            return model(features)
        if isinstance(features, tuple | list):
            return model(*features)
        return model(**features, labels=batch.labels) if self._gives_labels else model(**features)

    def compile_for(self, batch_size: int | None) -> None:
        """Compile the model for batches of this size; other batches run uncompiled. None turns compilation off.

        Whether a batch runs compiled depends on its size alone, so the result does not depend on what a worker did
        before.
        """
        self._compiled = None if batch_size is None else torch.compile(self.model, dynamic=False)
        self._compiled_size = batch_size

    def autocast(self) -> AbstractContextManager[Any]:
        """Return the context in which to compute the model and its loss: autocast to bfloat16, if requested."""
        return torch.autocast(self.device.type, torch.bfloat16) if self._uses_bfloat16 else nullcontext()

    def reseed(self, seed: int) -> None:
        """Seed the generators that the model may use.

        Not by `torch.manual_seed`, which queues every call with its stack if there is no CUDA.
        """
        torch.default_generator.manual_seed(seed)
        if self.device.type != "cpu":
            torch.get_device_module(self.device).manual_seed(seed)

    def gradient(self, batch: Examples) -> "BatchGradient":
        """Return the gradient of one minibatch as a function of the parameters."""
        return BatchGradient(self, batch)

    def full_gradient(self, data: Examples) -> Callable[[Vector], Vector]:
        """Return the gradient over all data of a client as a function of the parameters."""
        return lambda params: self.full_gradient_and_loss(params, data)[0]

    def full_gradient_and_loss(self, params: Vector, data: Examples) -> tuple[Vector, float]:
        """Return gradient and loss over all data of a client; as for minibatches, the loss is without weight decay."""
        total, losses = params.new_zeros(self.size + self.personal_size), 0.0
        pieces = [self.collate(data.slice(start, start + _PIECE)) for start in range(0, data.size, _PIECE)]
        counts = [count_scored_labels(piece.labels) for piece in pieces]
        for piece, count in zip(pieces, counts, strict=True):
            gradient, loss = self._loss_gradient(params, piece)
            total.add_(gradient, alpha=count / sum(counts))
            losses += loss.item() * count
        return self.split_personal(total, params)[0], losses / sum(counts)

    def _loss_gradient(self, params: Vector, batch: Examples) -> tuple[Vector, Tensor]:
        model = self.bind(params)
        forward = self._compiled if self._compiled is not None and batch.size == self._compiled_size else model
        stage = "in the model"
        try:
            with torch.enable_grad(), self.autocast():
                outputs = self.call(forward, batch)
                stage = "in the loss"
                loss = self.loss(outputs, batch.labels)
                stage = "in the backward pass"
                pieces = torch.autograd.grad(loss, [*self._parameters, *self._personal], materialize_grads=True)
        except Exception as error:
            add_note(error, stage)
            raise
        return torch.cat([piece.reshape(-1) for piece in pieces]), loss.detach()

    def split_personal(self, gradient: Vector, params: Vector) -> tuple[Vector, Vector | None]:
        """Apply weight decay and clipping to the gradient of all parameters; return its shared and personal parts."""
        if not self.personal_size:
            return self.adjust_gradient(gradient, params), None
        shared, personal = self.adjust_gradient(gradient, torch.cat([params, self._bound_personal])).split(
            [self.size, self.personal_size]
        )
        return shared, personal

    def adjust_gradient(self, gradient: Vector, params: Vector) -> Vector:
        """Apply weight decay and clipping to a gradient, or to a stack of them, in place."""
        if self.weight_decay:
            gradient.add_(params, alpha=self.weight_decay)
        if self.clip is not None:
            norm = torch.linalg.vector_norm(gradient, dim=-1, keepdim=True)
            gradient.mul_((self.clip / norm).clamp(max=1.0))
        return gradient


@final
class BatchGradient:
    """The gradient of one minibatch as a function of the parameters.

    `loss` is the loss at the parameters of the first call, `personal` the personal part of the last call's gradient.
    """

    __slots__ = ("batch", "loss", "personal", "problem")

    def __init__(self, problem: Problem, batch: Examples) -> None:
        self.problem = problem
        self.batch = batch
        self.loss: Tensor | None = None
        self.personal: Vector | None = None

    def __call__(self, params: Vector) -> Vector:
        gradient, loss = self.problem._loss_gradient(params, self.batch)
        if self.loss is None:
            self.loss = loss
        shared, self.personal = self.problem.split_personal(gradient, params)
        return shared


def reject_lazy_parameters(model: nn.Module) -> None:
    """Raise UserError if a parameter of the model has no shape yet."""
    for name, module in model.named_modules():
        if any(isinstance(p, nn.parameter.UninitializedParameter) for p in module.parameters(recurse=False)):
            raise UserError(
                f"the model must know its shapes, got the lazy {type(module).__name__} at {name!r}; pass one batch "
                "through the model first"
            )
