"""The local SGD loop of one client. `fedcm.core.local.stacked` has the same loop for several clients at once.

    d ← d + direction(y) + λ_step·y,  y ← x − η_l·d      once for every minibatch, from y = x = start(sent, kept), d = 0

This is y ← y − η_l·(direction(y) + λ_step·y), but y is rounded once and not once per step: steps that are smaller than
the rounding unit of a parameter add up in d and are not lost.
"""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch

from fedcm.core.algorithm import Algorithm, LocalRun, Step, Vector
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
    count: int,
    client_lr: float,
    step_decay: float,
    personal: Vector | None = None,
) -> ClientResult:
    """Take one local step for each minibatch and return the report and the new client state.

    `sent` and `kept` are not changed.

    Args:
        data: All examples of the client, for `LocalRun.full_gradient`.
        batches: The minibatches, one for each step.
        count: The number of minibatches.
        step_decay: λ_step, weight decay that is added to the direction.
        personal: The client's personal parameters, which the model is bound to. They change in place, by a plain step
            along the personal part of each minibatch gradient.
    """
    losses = []
    with torch.no_grad():
        full_gradient = problem.full_gradient(data)
        start, local = algorithm.start(sent, kept), algorithm.init_local(full_gradient, sent, kept)
        params, total = start.clone(), torch.zeros_like(start)
        steps = params.new_full((1,), count)
        for index, batch in enumerate(batches):
            gradient = problem.gradient(batch)
            step = Step(index, steps, client_lr, problem.shapes)
            direction, local = algorithm.step(gradient, params, sent, kept, local, step)
            if step_decay:
                direction = direction.add(params, alpha=step_decay)
            total += direction
            # in place, because the model's parameters are views of this vector
            torch.sub(start, total, alpha=client_lr, out=params)
            if personal is not None and gradient.personal is not None:
                personal.sub_(gradient.personal.add(personal, alpha=step_decay), alpha=client_lr)
            if gradient.loss is not None:
                losses.append(gradient.loss)
        run = LocalRun(
            start=start,
            end=params,
            direction_sum=total,
            steps=steps,
            client_lr=client_lr,
            full_gradient=full_gradient,
            local=local,
        )
        report, kept = algorithm.report(run, sent, kept)
    loss = torch.stack(losses).double().mean().item() if losses else math.nan
    return ClientResult(report, kept, count, loss)
