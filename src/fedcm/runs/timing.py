"""Time what a machine does, for autotune and for the estimates of a sweep."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from fedcm.executors.client_runner import ClientRunner

READING, STEP = "reading one batch anew", "one step"  # the names of timings


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


def time_reading(runner: ClientRunner) -> dict[str, float]:
    """Return the milliseconds in which client 0 reads the items of a batch from its torch dataset, and takes a step."""
    batches = -(-int(runner.data.sizes(np.array([0]))[0]) // runner.local_work.batch_size)
    reading = measure_shortest_time(lambda: runner.data.reread_client(0, 0), trials=3, seconds=1.0)
    problem = runner.problem
    gradient = problem.gradient(problem.collate(runner.data.client(0).slice(0, runner.local_work.batch_size)))
    step = measure_shortest_time(lambda: gradient(problem.initial_params), trials=3, seconds=1.0)
    return {READING: round(1000 * reading / batches, 4), STEP: round(1000 * step, 4)}


def describe_reading(milliseconds: Mapping[str, float]) -> str | None:
    """Say how long reading a batch anew takes, and a step; None if nothing is read anew."""
    if READING not in milliseconds:
        return None
    return f"{READING} takes {milliseconds[READING]:.3g} ms; {STEP} takes {milliseconds[STEP]:.3g} ms"
