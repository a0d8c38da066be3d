"""One step on two examples before anything is written: what does not fit is a sentence now, not a failure later.

The model, the loss and the backward pass are tried one after the other, so that the sentence names the one that failed.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedcm.core.algorithm import Algorithm
from fedcm.core.evaluation import PIECE, evaluation_mode, tally_examples
from fedcm.core.losses import example_losses
from fedcm.core.participation import PARTICIPATION
from fedcm.core.problem import Problem
from fedcm.core.round_loop import TrainingPlan
from fedcm.data.batches import LocalWork
from fedcm.data.dataset import Examples
from fedcm.data.federated import FederatedData
from fedcm.errors import UserError
from fedcm.system.faults import describe_error, describe_failure

_LOOKED_AT = 10_000  # clients whose sizes are asked for at most


def smoke_test(problem: Problem, data: Examples, classes: int | None) -> None:
    """Refuse a model that cannot take these data, cannot learn from them, or changes more than its parameters.

    A loss that cannot take the model's outputs is refused too."""
    name = type(problem.model).__name__
    some = Examples(data.features[:2], data.labels[:2])
    before = {key: buffer.clone() for key, buffer in problem.model.named_buffers()}
    with torch.random.fork_rng(devices=[]):
        outputs = _try_model(problem, some)
        _try_loss(problem, outputs, some, classes)
        _try_gradient(problem, some)
        _try_evaluation(problem, some)
    if classes is not None and isinstance(outputs, Tensor) and outputs.dim() > 1 and outputs.shape[1] < classes:
        raise UserError(f"the model {name} must give {classes} outputs, one a class, and gives {outputs.shape[1]}")
    for key, buffer in problem.model.named_buffers():
        if not torch.equal(buffer, before[key]):
            raise UserError(
                f"the model {name} must change nothing but its parameters, and its buffer {key!r} changed in a step: "
                "it would depend on which client trained last"
            )


def reject_failing_algorithm(algorithm: Algorithm[Any, Any, Any, Any], problem: Problem) -> None:
    """Try what an algorithm does before the first step, on this model's parameters."""
    params = problem.initial()
    try:
        algorithm.broadcast(algorithm.init_server(params))
        algorithm.init_client(params)
    except Exception as error:
        raise UserError(
            f"the algorithm {type(algorithm).__name__} failed on the {problem.size} parameters of the model: "
            f"{describe_error(error)}"
        ) from error


def reject_unusable_cohorts(plan: TrainingPlan) -> None:
    """Try a participation of the user's own on round 0."""
    if type(plan.participation) in PARTICIPATION.values():
        return
    name = type(plan.participation).__name__
    try:
        given = plan.participation.cohort(plan.population, plan.seed, 0)
    except Exception as error:
        raise UserError(
            f"the participation {name} failed to draw the clients of round 0: {describe_error(error)}"
        ) from error
    cohort = given if isinstance(given, np.ndarray) and given.ndim == 1 else None
    if cohort is None or cohort.dtype.kind not in "iu" or not _rises(cohort, plan.population):
        raise UserError(
            f"the participation {name} must give an array of client numbers from 0 to {plan.population - 1}, sorted, "
            f"each once, got {str(given)[:80]}"
        )


def _rises(cohort: np.ndarray, population: int) -> bool:
    signed = cohort.astype(np.int64)
    return not len(signed) or bool(signed[0] >= 0 and signed[-1] < population and (np.diff(signed) > 0).all())


def reject_lone_examples(problem: Problem, first: Examples, data: FederatedData, local_work: LocalWork) -> None:
    """Refuse batches of one example where the model cannot take one; batch norm cannot, with statistics of each batch.

    `first` are the examples of client 0."""
    one = Examples(*[part[:1] for part in first])
    name = type(problem.model).__name__
    with torch.random.fork_rng(devices=[]):
        try:
            problem.gradient(one)(problem.initial())
        except Exception as error:
            sizes = data.sizes(np.arange(min(data.population, _LOOKED_AT)))
            if len(alone := np.flatnonzero(_has_batch_of_one(sizes, local_work))):
                raise UserError(
                    f"the model {name} must take a batch of one example, because client {alone[0]} has "
                    f"{sizes[alone[0]]} and client.batch_size is {local_work.batch_size}, and failed on it; choose "
                    f"another batch size ({describe_error(error)})"
                ) from error
        if data.test_size % PIECE == 1:
            try:
                with evaluation_mode(problem, problem.initial()) as model:
                    model(one.features)
            except Exception as error:
                raise UserError(
                    f"the model {name} must take a single example in evaluation, because the {data.test_size} test "
                    f"examples are evaluated {PIECE} at a time, and failed on it; leave one out "
                    f"({describe_error(error)})"
                ) from error


def _has_batch_of_one(sizes: np.ndarray, local_work: LocalWork) -> np.ndarray:
    in_a_pass = -(-sizes // local_work.batch_size)
    steps = np.array([local_work.count(int(size)) for size in sizes])
    return (sizes - (in_a_pass - 1) * local_work.batch_size == 1) & (steps >= in_a_pass) | (local_work.batch_size == 1)


def _try_model(problem: Problem, some: Examples) -> Any:
    try:
        with torch.enable_grad(), problem.arithmetic():
            return problem.bind(problem.initial())(some.features)
    except Exception as error:
        kind = f"{tuple(some.features.shape[1:])} {str(some.features.dtype).removeprefix('torch.')}"
        hint = "" if some.features.is_floating_point() else " (integers are token ids: give amounts as floats)"
        name = type(problem.model).__name__
        raise UserError(
            f"the model {name} must take examples of {kind}{hint}, and failed on {_count(some)}: "
            f"{describe_error(error)}"
        ) from error


def _try_loss(problem: Problem, outputs: Any, some: Examples, classes: int | None) -> None:
    loss = problem.loss
    name = getattr(loss, "__qualname__", type(loss).__name__)
    try:
        with torch.enable_grad(), problem.arithmetic():
            found = loss(outputs, some.labels)
    except Exception as error:
        if example_losses(loss) is not None:  # the default losses fail on what they are given
            needed = _write_needed_outputs(classes, some.labels)
            raise UserError(
                f"the model {type(problem.model).__name__} must give {needed}, and gave {_described(outputs)} for "
                f"{_count(some)}, on which {name} failed: {describe_error(error)}"
            ) from error
        raise UserError(
            f"the loss {name} failed on {_count(some)} (outputs: {_described(outputs)}; labels: "
            f"{_described(some.labels)}): {describe_error(error)}"
        ) from error
    if not (isinstance(found, Tensor) and found.numel() == 1):
        raise UserError(f"the loss {name} must give one number, a tensor of one element, got {_described(found)}")
    _reject_broadcast(problem, name, outputs, some.labels)


def _write_needed_outputs(classes: int | None, labels: Tensor) -> str:
    """What a default loss needs of a model."""
    own = tuple(labels.shape[1:])
    if labels.is_floating_point():
        return f"outputs of the labels' shape, {own} per example" if own else "1 output per example"
    if own in ((), (1,)):
        return f"{classes} outputs per example" if classes is not None else "one output per class"
    return f"outputs (classes, …) for labels {own}"


def _reject_broadcast(problem: Problem, name: str, outputs: Any, labels: Tensor) -> None:
    """Refuse a loss that subtracts labels (b,) from outputs (b, 1), or the reverse: it would compare every output with
    every label.

    Tried on made-up outputs and labels, all different: on real ones the two can agree by chance."""
    if not isinstance(outputs, Tensor) or outputs.shape == labels.shape or outputs.numel() != labels.numel():
        return
    chance, count = torch.Generator().manual_seed(0), 4
    made = torch.rand(count, *outputs.shape[1:], generator=chance).to(outputs)
    if labels.is_floating_point():
        wanted = torch.rand(count, *labels.shape[1:], generator=chance).to(labels)
    else:
        wanted = (torch.arange(count * labels[0].numel()) % 2).reshape(count, *labels.shape[1:]).to(labels)
    try:
        with problem.arithmetic():
            found, alike = problem.loss(made, wanted), problem.loss(made.reshape(wanted.shape), wanted)
    except Exception:  # the loss asks for the shapes as they are, or for other values
        return
    if not torch.allclose(alike, found, rtol=1e-3):
        raise UserError(
            f"the loss {name} gives {found.item():.6g} for outputs {tuple(made.shape)} and labels "
            f"{tuple(wanted.shape)}, and {alike.item():.6g} if both have the labels' shape: it broadcasts one over the "
            "other; give outputs and labels of one shape"
        )


def _try_gradient(problem: Problem, some: Examples) -> None:
    try:
        problem.gradient(some)(problem.initial())
    except Exception as error:
        raise UserError(
            "the loss must have a gradient with respect to the parameters of the model "
            f"{type(problem.model).__name__}, and the backward pass failed on {_count(some)}: {describe_error(error)}"
        ) from error


def _try_evaluation(problem: Problem, some: Examples) -> None:
    try:
        with evaluation_mode(problem, problem.initial()) as model:
            tally_examples(problem, model, some)
    except Exception as error:
        raise UserError(describe_failure(error, f"the evaluation failed on {_count(some)}")) from error


def _described(value: Any) -> str:
    return f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"


def _count(some: Examples) -> str:
    return "one example" if some.size == 1 else f"{some.size} examples"
