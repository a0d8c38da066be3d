"""The local SGD loop of one client. `fedcm.core.stacked` has the same loop for several clients at once.

    d ← d + direction(y) + λ_step·y,  y ← x − η_l·d      once for every minibatch, from y = x = sent.params, d = 0

This is y ← y − η_l·(direction(y) + λ_step·y), but y is rounded once and not once per step: steps that are smaller than
the rounding unit of a parameter add up in d and are not lost.
"""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch

from fedcm.core.algorithm import Algorithm, LocalRun
from fedcm.core.problem import Problem
from fedcm.data.dataset import Examples


class ClientResult(NamedTuple):
    """The result of one client's local steps."""

    report: tuple
    client_state: tuple
    steps: int
    loss: float  # mean of the minibatch losses, each taken before its step


def run_local_steps(
    algorithm: Algorithm[Any, Any, Any, Any],
    problem: Problem,
    sent: Any,
    kept: Any,
    *,
    data: Examples,
    batches: Iterable[Examples],
    client_lr: float,
    step_decay: float,
) -> ClientResult:
    """Take one local step for each minibatch and return the report and the new client state.

    `sent` and `kept` are not changed.

    Args:
        data: All examples of the client, for `LocalRun.full_gradient`.
        batches: The minibatches, one for each step.
        step_decay: λ_step, weight decay that is added to the direction.
    """
    params, total = sent.params.clone(), torch.zeros_like(sent.params)
    steps, losses = 0, []
    with torch.no_grad():
        for batch in batches:
            gradient = problem.gradient(batch)
            direction = algorithm.direction(gradient, params, sent, kept)
            if step_decay:
                direction = direction.add(params, alpha=step_decay)
            total += direction
            # in place, because the model's parameters are views of this vector
            torch.sub(sent.params, total, alpha=client_lr, out=params)
            steps += 1
            if gradient.loss is not None:
                losses.append(gradient.loss)
        run = LocalRun(
            start=sent.params,
            end=params,
            direction_sum=total,
            steps=params.new_full((1,), steps),
            client_lr=client_lr,
            full_gradient=problem.full_gradient(data),
        )
        report, kept = algorithm.report(run, sent, kept)
    loss = torch.stack(losses).double().mean().item() if losses else math.nan
    return ClientResult(report, kept, steps, loss)
