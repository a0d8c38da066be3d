"""Schedules of a learning rate by torch.optim.lr_scheduler, as an independent reference."""

from typing import Any

import torch
from torch.optim import lr_scheduler as torch_lr


def fall(t: int, total: int) -> float:
    """A user's own function that depends on both arguments."""
    return (1 + total - t) / (1 + total) + 0.25


def list_torch_factors(schedule: dict[str, Any], total: int) -> list[float]:
    """Return the factors that torch computes for a schedule, as a TOML table, over `total` rounds or steps."""
    given = dict(schedule)
    kind, warmup, horizon = given.pop("kind"), given.pop("warmup", 0), given.pop("over", total)
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    remaining, lowest = max(horizon - warmup, 1), given.pop("final", 0.0)  # a short round may be all warm-up
    main = _make_scheduler(optimizer, kind, remaining, lowest, given)
    scheduler = main
    if warmup:
        linear = torch_lr.LinearLR(optimizer, start_factor=1 / warmup, total_iters=warmup - 1)
        scheduler = torch_lr.SequentialLR(optimizer, [linear, main], milestones=[warmup])
    factors = []
    for t in range(total):
        rate = optimizer.param_groups[0]["lr"]
        factors.append(lowest + (1 - lowest) * rate if kind == "polynomial" and t >= warmup else rate)
        optimizer.step()
        scheduler.step()
    last = factors[min(horizon, total) - 1]
    return factors[:horizon] + [last] * (total - horizon)


def _make_scheduler(optimizer: Any, kind: str, remaining: int, lowest: float, given: dict[str, Any]) -> Any:
    match kind:
        case "constant":
            return torch_lr.LambdaLR(optimizer, lambda t: 1.0)
        case "exponential":
            return torch_lr.ExponentialLR(optimizer, given["decay"])
        case "step" if "every" in given:
            return torch_lr.StepLR(optimizer, given["every"], given.get("factor", 0.1))
        case "step":
            return torch_lr.MultiStepLR(optimizer, given["milestones"], given.get("factor", 0.1))
        case "cosine":
            return torch_lr.CosineAnnealingLR(optimizer, remaining, eta_min=lowest)
        case "polynomial":
            return torch_lr.PolynomialLR(optimizer, remaining, given.get("power", 1.0))
        case _:
            return torch_lr.LambdaLR(optimizer, lambda t: fall(t, remaining))
