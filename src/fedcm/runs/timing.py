"""Time what a machine does, for autotune and for the estimates of a sweep."""

import time
from collections.abc import Callable
from typing import Any

import torch


def measure_shortest_time(action: Callable[[], Any], trials: int, seconds: float) -> float:
    """Return the shortest time that an action took, because disturbances only add time.

    Args:
        action: Called once before the first trial, so that nothing is measured that happens only once.
        trials: The greatest number of trials.
        seconds: No trial starts after this time.
    """
    action()
    shortest, began = float("inf"), time.perf_counter()
    for _ in range(trials):
        start = time.perf_counter()
        action()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        shortest = min(shortest, time.perf_counter() - start)
        if time.perf_counter() - began > seconds:
            break
    return shortest
