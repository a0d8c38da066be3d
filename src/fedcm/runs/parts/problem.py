"""Build the problem: the model with its loss, its personal parameters and its precision."""

from collections.abc import Mapping
from inspect import signature

from torch import nn

from fedcm.algorithms.registry import get_algorithm_name
from fedcm.config.sections import Experiment
from fedcm.core.algorithm import is_decentralised
from fedcm.core.losses import (
    Loss,
    cross_entropy,
    get_model_loss,
    squared_error,
)
from fedcm.core.model_mode import warn_of_eval_mode
from fedcm.core.problem import Problem
from fedcm.data.federated import FederatedData
from fedcm.data.structures.collate import Collate, pad_examples
from fedcm.errors import UserError
from fedcm.models.trainable import select_personal
from fedcm.system.hardware import has_bfloat16_instructions, resolve_device
from fedcm.system.user_warnings import SlowPrecisionWarning, warn_user


def build_problem(
    experiment: Experiment, model: nn.Module, loss: Loss | None, collate: Collate | None, data: FederatedData
) -> Problem:
    """Return the model and its loss on the experiment's device, in its precision."""
    client, engine = experiment.client, experiment.engine
    warn_of_eval_mode(model)
    if engine.precision == "bf16" and engine.device == "cpu":
        _warn_of_slow_bfloat16()
    model = model.to(resolve_device(engine.device))
    if engine.precision == "float64":
        model = model.double()
    return Problem(
        model,
        loss or _choose_loss(model, data),
        weight_decay=client.weight_decay if client.weight_decay_at == "loss" else 0.0,
        clip=client.clip,
        autocast=engine.precision == "bf16",
        collate=collate or pad_examples,
        personal=select_personal(model, experiment.model.personal) if experiment.model.personal else (),
    )


def _warn_of_slow_bfloat16() -> None:
    if has_bfloat16_instructions() is False:
        warn_user(
            'this CPU has no instructions for bfloat16 (AVX512-BF16 or AMX), so engine.precision = "bf16" is slower '
            'than "float32" here; use it only to repeat a run',
            SlowPrecisionWarning,
        )


def reject_with_personal(experiment: Experiment, data: FederatedData) -> None:
    """Raise UserError if the experiment has a setting that personal parameters rule out."""
    name = get_algorithm_name(experiment.algorithm)
    if is_decentralised(experiment.algorithm):
        raise UserError(f"model.personal needs an algorithm with a server, got {name!r}")
    if data.validation_size:
        raise UserError(
            "a model with personal parameters is evaluated at its clients, so there must be no validation data; set "
            "evaluation.clients instead, to 0.2 for example"
        )
    if experiment.engine.client_states != "exact":
        raise UserError(
            "personal parameters are client states and must not be rounded, got engine.client_states = "
            f'"{experiment.engine.client_states}"; set it to "exact"'
        )


def _choose_loss(model: nn.Module, data: FederatedData) -> Loss:
    """Return the default loss for these data."""
    if isinstance(data.input_shape, Mapping) and "labels" in signature(model.forward).parameters:
        return get_model_loss
    return cross_entropy if data.classes is not None else squared_error
