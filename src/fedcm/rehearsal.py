"""One step on two examples before anything is written: what does not fit is a sentence now, not a traceback later."""

import torch

from fedcm.data.dataset import Examples
from fedcm.problem import Problem
from fedcm.refusal import Refused


def rehearse(problem: Problem, data: Examples, classes: int | None) -> None:
    """Refuse a model that cannot take these data, cannot learn from them, or keeps something beside its parameters."""
    name = type(problem.model).__name__
    some = Examples(data.features[:2], data.labels[:2])
    before = {key: buffer.clone() for key, buffer in problem.model.named_buffers()}
    problem.model.train()
    try:
        with torch.random.fork_rng(devices=[]):
            problem.gradient(some)(problem.initial())
            outputs = problem.bind(problem.initial())(some.features)
    except Exception as error:
        kind = f"{tuple(some.features.shape[1:])} {str(some.features.dtype).removeprefix('torch.')}"
        hint = "" if some.features.is_floating_point() else " (integers are token ids: give amounts as floats)"
        raise Refused(
            f"the model {name} must take examples of {kind}{hint} and give {classes or 1} outputs with a gradient, and "
            f"failed on two of them: {type(error).__name__}: {error}"
        ) from None
    if classes is not None and isinstance(outputs, torch.Tensor) and outputs.dim() > 1 and outputs.shape[1] < classes:
        raise Refused(f"the model {name} must give {classes} outputs, one a class, and gives {outputs.shape[1]}")
    for key, buffer in problem.model.named_buffers():
        if not torch.equal(buffer, before[key]):
            raise Refused(
                f"the model {name} must keep nothing but its parameters, and its buffer {key!r} changed in a step: "
                "what stands there would depend on who trained last"
            )
