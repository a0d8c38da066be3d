"""Run one step on two examples before anything is written, so that errors appear now and not hours later.

The model, the loss and the backward pass run one after another, so that the message names the part that failed.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedcm.core.algorithm import Algorithm
from fedcm.core.contract import make_templates
from fedcm.core.evaluation import EVALUATED_SETS, PIECE, count_examples, evaluation_mode, tally_examples
from fedcm.core.losses import find_example_loss
from fedcm.core.participation import PARTICIPATION, Participation
from fedcm.core.problem import Problem
from fedcm.data.augmentation import Augment, reject_failing_augment
from fedcm.data.batches import LocalWork
from fedcm.data.dataset import Examples
from fedcm.data.federated import ArrayData, FederatedData
from fedcm.data.structures.collate import reject_failing_collate
from fedcm.data.structures.tree import iterate_leaves
from fedcm.errors import UserError
from fedcm.executors.client_runner import ClientRunner
from fedcm.system.error_messages import describe_error, describe_failure
from fedcm.system.formatting import describe_value, format_count

_CHECKED_CLIENTS = 10_000  # clients whose sizes are read at most
_LEAST_RATE = 1e-12  # as for the rates of rounds


def smoke_test(problem: Problem, data: Examples, classes: int | None) -> None:
    """Reject a model or a loss that fails on these data, or a model that changes more than its parameters.

    Args:
        problem: The model and its loss.
        data: Examples of one client.
        classes: The number of classes; None for a regression or a user's own loss.

    Raises:
        UserError: If the model, the loss or the backward pass failed.
    """
    name = type(problem.model).__name__
    reject_failing_collate(problem.collate, data.slice(0, 2))
    sample = problem.collate(data.slice(0, 2))
    before = {key: buffer.clone() for key, buffer in problem.model.named_buffers()}
    with torch.random.fork_rng(devices=[]):
        outputs = _try_model(problem, sample)
        _try_loss(problem, outputs, sample, classes)
        _try_gradient(problem, sample)
        _try_evaluation(problem, data.slice(0, 2))
    if classes is not None and isinstance(outputs, Tensor) and outputs.dim() > 1 and outputs.shape[1] < classes:
        raise UserError(f"the model {name} must give {classes} outputs, one per class, and gives {outputs.shape[1]}")
    for key, buffer in problem.model.named_buffers():
        if not torch.equal(buffer, before[key]):
            raise UserError(
                f"the model {name} must change nothing but its parameters, and its buffer {key!r} changed in a step: "
                "it would depend on which client trained last"
            )


def smoke_test_augment(problem: Problem, augment: Augment, data: Examples) -> None:
    """Reject changes of a batch that fail, or that the model cannot take."""
    sample = reject_failing_augment(augment, problem.collate(data.slice(0, 2)))
    with torch.random.fork_rng(devices=[]):
        outputs = _try_model(problem, sample)
        _try_loss(problem, outputs, sample, None)


def reject_failing_algorithm(algorithm: Algorithm[Any, Any, Any, Any], problem: Problem) -> None:
    """Run the functions of an algorithm once, with zero gradients, on this model's parameters."""
    try:
        make_templates(algorithm, problem.initial_params, problem.shapes)
    except Exception as error:
        raise UserError(
            f"the algorithm {type(algorithm).__name__} failed on the {problem.size} parameters of the model: "
            f"{describe_error(error)}"
        ) from error


def reject_unusable_cohorts(participation: Participation, population: int, seed: int) -> None:
    """Try a user's own participation on round 0."""
    if type(participation) in PARTICIPATION.values():
        return
    name = type(participation).__name__
    try:
        drawn = participation.cohort(population, seed, 0)
    except Exception as error:
        raise UserError(
            f"the participation {name} failed to draw the clients of round 0: {describe_error(error)}"
        ) from error
    cohort = drawn if isinstance(drawn, np.ndarray) and drawn.ndim == 1 else None
    if cohort is None or cohort.dtype.kind not in "iu" or not _is_increasing(cohort, population):
        raise UserError(
            f"the participation {name} must return an array of client indices from 0 to {population - 1}, sorted, "
            f"each once, got {str(drawn)[:80]}"
        )


def reject_unusable_step_factors(runner: ClientRunner, client_lr: float) -> None:
    """Try the factors of the local steps on the numbers of steps that clients take."""
    if runner.step_factors is None:
        return
    clients = np.arange(min(runner.data.population, _CHECKED_CLIENTS))
    counts = np.unique(runner.count_steps(clients, round=0)).tolist()
    _reject_long_warmup(runner, max(counts))
    for count in counts:
        least = min(runner.step_factors.get(count))
        if client_lr * least < _LEAST_RATE:
            raise UserError(
                f"client.lr times the factors of client.step_schedule must stay above {_LEAST_RATE:g}, but it is "
                f"{client_lr * least:g} for a client with {format_count(count, 'local step')}; change one of them"
            )


def _reject_long_warmup(runner: ClientRunner, most: int) -> None:
    """Raise UserError if all local steps of all clients are a warm-up.

    The number of steps must be known: it is not if it is drawn, or if a site of a federation knows only its own data.
    """
    assert runner.step_factors is not None
    schedule, work = runner.step_factors.schedule, runner.local_work
    counts_examples = work.steps is None and isinstance(work.epochs, int) and isinstance(runner.data, ArrayData)
    is_known = (isinstance(work.steps, int) or counts_examples) and work.stragglers is None
    if is_known and schedule.horizon is None and schedule.warmup >= most:
        raise UserError(
            "client.step_schedule.warmup must be below the number of local steps of some client, or all steps are a "
            f"warm-up, got {schedule.warmup} for at most {format_count(most, 'step')}; shorten the warm-up or take "
            "more local steps"
        )


def _is_increasing(cohort: np.ndarray, population: int) -> bool:
    signed = cohort.astype(np.int64)
    return not len(signed) or bool(signed[0] >= 0 and signed[-1] < population and (np.diff(signed) > 0).all())


def reject_lone_examples(problem: Problem, first: Examples, data: FederatedData, local_work: LocalWork) -> None:
    """Reject batches of one example if the model fails on them, as batch norm does.

    Args:
        problem: The model and its loss.
        first: The examples of client 0.
        data: The data of all clients.
        local_work: The batch size and the number of steps.
    """
    one = problem.collate(first.slice(0, 1))
    name = type(problem.model).__name__
    with torch.random.fork_rng(devices=[]):
        try:
            problem.gradient(one)(problem.initial_params)
        except Exception as error:
            sizes = data.sizes(np.arange(min(data.population, _CHECKED_CLIENTS)))
            if len(alone := np.flatnonzero(_has_batch_of_one(sizes, local_work))):
                raise UserError(
                    f"the model {name} failed on a batch of one example; client {alone[0]} has such a batch, with "
                    f"{format_count(int(sizes[alone[0]]), 'example')} and client.batch_size = {local_work.batch_size}; "
                    f"choose another batch size ({describe_error(error)})"
                ) from error
        for which in EVALUATED_SETS:
            if (size := count_examples(data, which)) % PIECE == 1:
                try:
                    with evaluation_mode(problem, problem.initial_params) as model:
                        problem.call(model, one)
                except Exception as error:
                    raise UserError(
                        f"the model {name} failed in evaluation on a batch of one example; the last batch of the "
                        f"{which} set has one, because its {size} examples are evaluated {PIECE} at a time; leave one "
                        f"example out ({describe_error(error)})"
                    ) from error


def _has_batch_of_one(sizes: np.ndarray, local_work: LocalWork) -> np.ndarray:
    in_a_pass = -(-sizes // local_work.batch_size)
    steps = np.array([local_work.count_most_steps(int(size)) for size in sizes])
    return (sizes - (in_a_pass - 1) * local_work.batch_size == 1) & (steps >= in_a_pass) | (local_work.batch_size == 1)


def _try_model(problem: Problem, sample: Examples) -> Any:
    try:
        with torch.enable_grad(), problem.autocast():
            return problem.call(problem.bind(problem.initial_params), sample)
    except UserError:
        raise  # a bundled model says itself what it needs
    except Exception as error:
        kind, hint = _describe_features(sample.features), ""
        if isinstance(sample.features, Tensor) and not sample.features.is_floating_point():
            hint = " (integers are token ids: give amounts as floats)"
        name = type(problem.model).__name__
        raise UserError(
            f"the model {name} must take examples of {kind}{hint}, and failed on {_count_examples(sample)}: "
            f"{describe_error(error)}"
        ) from error


def _try_loss(problem: Problem, outputs: Any, sample: Examples, classes: int | None) -> None:
    loss = problem.loss
    name = getattr(loss, "__qualname__", type(loss).__name__)
    try:
        with torch.enable_grad(), problem.autocast():
            value = loss(outputs, sample.labels)
    except Exception as error:
        if find_example_loss(loss) is not None:  # a default loss fails because of its arguments
            needed = _describe_needed_outputs(classes, sample.labels)
            raise UserError(
                f"the model {type(problem.model).__name__} must give {needed}, and gave {_describe(outputs)} for "
                f"{_count_examples(sample)}, on which {name} failed: {describe_error(error)}"
            ) from error
        raise UserError(
            f"the loss {name} failed on {_count_examples(sample)} (outputs: {_describe(outputs)}; labels: "
            f"{_describe(sample.labels)}): {describe_error(error)}"
        ) from error
    if not (isinstance(value, Tensor) and value.numel() == 1):
        raise UserError(f"the loss {name} must give one number, a tensor of one element, got {_describe(value)}")
    _reject_broadcast(problem, name, outputs, sample.labels)


def _describe_features(features: Any) -> str:
    """Describe what the model is called with: `(3, 32, 32) float32`, or the same for each argument."""
    parts = []
    for path, leaf in iterate_leaves(features):
        kind = f"{tuple(leaf.shape[1:])} {str(leaf.dtype).removeprefix('torch.')}"
        parts.append(f"{path}: {kind}" if path else kind)
    return ", ".join(parts)


def _describe_needed_outputs(classes: int | None, labels: Any) -> str:
    """The outputs that a default loss needs."""
    if not isinstance(labels, Tensor):
        return "a loss of your own for labels in a structure"
    own = tuple(labels.shape[1:])
    if labels.is_floating_point():
        return f"outputs of the labels' shape, {own} per example" if own else "1 output per example"
    if own in ((), (1,)):
        return f"{classes} outputs per example" if classes is not None else "one output per class"
    return f"outputs (classes, …) for labels {own}"


def _reject_broadcast(problem: Problem, name: str, outputs: Any, labels: Any) -> None:
    """Reject a loss that subtracts labels (b,) from outputs (b, 1), or the reverse, and so compares all pairs.

    It is tried on random outputs and labels, because on real ones both results can agree by chance.
    """
    if not isinstance(outputs, Tensor) or not isinstance(labels, Tensor):
        return
    if outputs.shape == labels.shape or outputs.numel() != labels.numel():
        return
    generator, count = torch.Generator().manual_seed(0), 4
    predictions = torch.rand(count, *outputs.shape[1:], generator=generator).to(outputs)
    if labels.is_floating_point():
        targets = torch.rand(count, *labels.shape[1:], generator=generator).to(labels)
    else:
        targets = (torch.arange(count * labels[0].numel()) % 2).reshape(count, *labels.shape[1:]).to(labels)
    try:
        with problem.autocast():
            value, expected = (
                problem.loss(predictions, targets),
                problem.loss(predictions.reshape(targets.shape), targets),
            )
    except Exception:  # the loss requires these shapes, or other values
        return
    if not torch.allclose(expected, value, rtol=1e-3):
        raise UserError(
            f"the loss {name} gives {value.item():.6g} for outputs {tuple(predictions.shape)} and labels "
            f"{tuple(targets.shape)}, and {expected.item():.6g} if both have the labels' shape: it broadcasts one "
            "over the other; give outputs and labels of one shape"
        )


def _try_gradient(problem: Problem, sample: Examples) -> None:
    try:
        problem.gradient(sample)(problem.initial_params)
    except Exception as error:
        raise UserError(
            "the loss must have a gradient with respect to the parameters of the model "
            f"{type(problem.model).__name__}, and the backward pass failed on {_count_examples(sample)}: "
            f"{describe_error(error)}"
        ) from error


def _try_evaluation(problem: Problem, sample: Examples) -> None:
    try:
        with evaluation_mode(problem, problem.initial_params) as model:
            tally_examples(problem, model, sample)
    except Exception as error:
        raise UserError(describe_failure(error, f"the evaluation failed on {_count_examples(sample)}")) from error


def _describe(value: Any) -> str:
    return f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else describe_value(value)


def _count_examples(sample: Examples) -> str:
    return "one example" if sample.size == 1 else f"{sample.size} examples"
