"""The local SGD loop of one client. `fedcm.core.local.stacked` has the same loop for several clients at once.

    d ← d + f_k·(direction(y) + λ_step·y),  y ← x − η_l·d     for every minibatch, from y = x = start(sent, kept), d = 0

This is y ← y − η_l·f_k·(direction(y) + λ_step·y), but y is rounded once and not once per step: steps that are smaller
than the rounding unit of a parameter add up in d and are not lost. Without `client.step_schedule`, all f_k are 1.
"""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch

from fedcm.core.algorithm import Algorithm, LocalRun, Step
from fedcm.core.local.optimizers import LocalOptimizer, OptimizedGradient
from fedcm.core.local.personal import PersonalSteps
from fedcm.core.local.step_factors import StepFactors
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
    step_factors: StepFactors | None = None,
    optimizer: LocalOptimizer | None = None,
    personal: PersonalSteps | None = None,
) -> ClientResult:
    """Take one local step for each minibatch and return the report and the new client state.

    `sent` and `kept` are not changed.

    Args:
        data: All examples of the client, for `LocalRun.full_gradient`.
        batches: The minibatches, one for each step.
        count: The number of minibatches.
        step_decay: λ_step, weight decay that is added to the direction.
        step_factors: The factors f_k; by default 1.
        optimizer: Maps the gradients of the minibatches before the algorithm sees them; by default none.
        personal: Takes the steps of the client's personal parameters, which the model is bound to.
    """
    losses = []
    factors = step_factors.get(count) if step_factors is not None else None
    with torch.no_grad():
        full_gradient = problem.full_gradient(data)
        start, local = algorithm.start(sent, kept), algorithm.init_local(full_gradient, sent, kept)
        params, total = start.clone(), torch.zeros_like(start)
        steps = params.new_full((1,), count)
        state = optimizer.init(start) if optimizer is not None else None
        for index, batch in enumerate(batches):
            gradient = problem.gradient(batch)
            rate = client_lr if factors is None else client_lr * factors[index]
            step = Step(index, steps, rate, problem.shapes)
            if optimizer is None:
                direction, local = algorithm.step(gradient, params, sent, kept, local, step)
            else:
                optimized = OptimizedGradient(optimizer, gradient, state, index)
                direction, local = algorithm.step(optimized, params, sent, kept, local, step)
                state = optimized.state
            if step_decay:
                direction = direction.add(params, alpha=step_decay)
            if factors is None:
                total += direction
            else:
                total.add_(direction, alpha=factors[index])
            # in place, because the model's parameters are views of this vector
            torch.sub(start, total, alpha=client_lr, out=params)
            if personal is not None and gradient.personal is not None:
                personal.take(gradient.personal, rate, index)
            if gradient.loss is not None:
                losses.append(gradient.loss)
        run = LocalRun(
            start=start,
            end=params,
            direction_sum=total,
            steps=steps if step_factors is None else params.new_full((1,), step_factors.sum(count)),
            client_lr=client_lr,
            full_gradient=full_gradient,
            local=local,
        )
        report, kept = algorithm.report(run, sent, kept)
    loss = torch.stack(losses).double().mean().item() if losses else math.nan
    return ClientResult(report, kept, count, loss)
