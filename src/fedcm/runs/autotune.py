"""Choose what an experiment leaves to the machine ("auto") by timing: layout of images, stack size, compilation.

Each choice can change the last bits of a run. So it is made once, before the first round, and becomes part of the run's
experiment: a resume and any number of workers use it. The usual option stays unless another one is clearly faster, so
that noise in the timings rarely decides.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from fedcm.config.sections import EngineSection
from fedcm.core.problem import Problem
from fedcm.core.round_loop import TrainingPlan
from fedcm.core.stacked import StackedProblem, reject_batch_dependent_model
from fedcm.data.batches import LocalWork, select_rows
from fedcm.data.dataset import Examples
from fedcm.data.federated import FederatedData
from fedcm.errors import UserError
from fedcm.system.error_messages import format_location
from fedcm.system.hardware import count_default_workers, use_one_thread

_WORTHWHILE = 0.9  # another option must take at most this share of the usual option's time
_TRIALS, _SECONDS = 7, 0.3  # how often, or how long, an option is timed
_TINY = 0.003  # seconds per step on a CPU; above it one client keeps a core busy
_STACKS = (4, 16, 64, 256)
_LONG = 1200.0  # seconds of steps per process; above it a minute of compiling can be worthwhile


class AutotuneResult(NamedTuple):
    """The chosen engine, and the timings: milliseconds per step of one client, by option."""

    engine: EngineSection
    step_milliseconds: dict[str, float]


def tune_engine(
    engine: EngineSection, problem: Problem, data: FederatedData, local_work: LocalWork, plan: TrainingPlan
) -> AutotuneResult:
    """Replace every "auto" of an engine by the fastest option."""
    timings: dict[str, float] = {}
    if "auto" in (engine.layout, engine.stack, engine.compile):
        with use_one_thread(), torch.random.fork_rng(devices=[]):
            engine = _choose(engine, problem, data, local_work, plan, timings)
    if engine.stack != 1 and engine.compile == "on":
        raise UserError(f'engine.compile = "on" needs engine.stack = 1, got {engine.stack}')
    return AutotuneResult(engine, timings)


def _choose(
    engine: EngineSection,
    problem: Problem,
    data: FederatedData,
    local_work: LocalWork,
    plan: TrainingPlan,
    timings: dict[str, float],
) -> EngineSection:
    processes, cohort = count_default_workers(engine.device), _compute_mean_cohort(plan)
    if engine.layout == "auto":
        engine = engine.model_copy(update={"layout": _choose_layout(problem, data, local_work, timings)})
    first = data.prepare_for(problem.dtype, problem.device, engine.layout).client(0)
    batch = _take_first_batch(first, local_work)
    alone = _time(lambda: problem.gradient(batch)(problem.initial_params))
    timings["one client"] = _to_milliseconds(alone)
    if engine.stack == "auto":
        most = (
            int(cohort // processes) if engine.compile != "on" else 1
        )  # fewer stacks than processes would leave some idle
        engine = engine.model_copy(update={"stack": _choose_stack(problem, first, batch, alone, most, timings)})
    if engine.compile == "auto":
        seconds = alone * plan.rounds * cohort * local_work.count_steps(int(data.sizes(np.array([0]))[0])) / processes
        on = engine.stack == 1 and seconds > _LONG and _is_compiling_worthwhile(problem, batch, alone, timings)
        engine = engine.model_copy(update={"compile": "on" if on else "off"})
    return engine


def _compute_mean_cohort(plan: TrainingPlan) -> float:
    return float(np.mean([len(plan.participation.cohort(plan.population, plan.seed, round)) for round in range(5)]))


def _choose_layout(problem: Problem, data: FederatedData, local_work: LocalWork, timings: dict[str, float]) -> str:
    if len(data.input_shape) != 3:
        return "channels_last"  # without images the layout does not matter
    times = {}
    for layout in ("channels_last", "contiguous"):
        batch = _take_first_batch(data.prepare_for(problem.dtype, problem.device, layout).client(0), local_work)
        times[layout] = _time(lambda: problem.gradient(batch)(problem.initial_params))  # noqa: B023
        timings[layout] = _to_milliseconds(times[layout])
    return "contiguous" if times["contiguous"] < _WORTHWHILE * times["channels_last"] else "channels_last"


def _choose_stack(
    problem: Problem, first: Examples, batch: Examples, alone: float, most: int, timings: dict[str, float]
) -> int:
    if most < 2 or (alone > _TINY and problem.device.type == "cpu"):
        return 1
    try:
        reject_batch_dependent_model(problem, first)
        stacked = StackedProblem(problem)
        best, shortest = 1, _WORTHWHILE * alone
        for size in sorted({min(size, most) for size in _STACKS}):
            examples = Examples(*[part.expand(size, *part.shape).contiguous() for part in batch])
            weights = problem.initial_params.new_full((size, batch.size), 1 / batch.size)
            params = problem.initial_params.expand(size, -1).contiguous()
            each = _time(lambda: stacked.compute_gradient(params, examples, weights)) / size  # noqa: B023
            timings[f"stack of {size}"] = _to_milliseconds(each)
            if each < shortest:
                best, shortest = size, _WORTHWHILE * each
    except Exception:  # torch.func cannot handle the model: clients train one by one
        return 1
    return best


def _is_compiling_worthwhile(problem: Problem, batch: Examples, alone: float, timings: dict[str, float]) -> bool:
    try:
        problem.compile_for(batch.size)
        compiled = _time(lambda: problem.gradient(batch)(problem.initial_params))
    except Exception:  # there is no compiler, or it cannot handle the model
        return False
    finally:
        problem.compile_for(None)
    timings["compiled"] = _to_milliseconds(compiled)
    return compiled < _WORTHWHILE * alone


def compile_model(problem: Problem, batch_size: int, data: Examples) -> None:
    """Compile the model now, so that no round waits for the compiler. Too few examples are repeated to a full batch.

    Raises:
        UserError: torch.compile cannot handle the model.
    """
    index = torch.arange(batch_size, device=data.labels.device) % data.size
    try:
        problem.compile_for(batch_size)
        with use_one_thread(), torch.random.fork_rng(devices=[]):
            problem.gradient(Examples(select_rows(data.features, index), data.labels[index]))(problem.initial_params)
    except Exception as error:
        what = str(error).strip().splitlines()
        raise UserError(
            f"torch.compile must be able to take the model {type(problem.model).__name__}, and failed: "
            f"{type(error).__name__}{': ' + what[0] if what else ''}{format_location(error)}; "
            'set engine.compile = "off"'
        ) from error


def _take_first_batch(data: Examples, local_work: LocalWork) -> Examples:
    return Examples(*[part[: local_work.batch_size] for part in data])


def _time(step: Callable[[], Any]) -> float:
    """Return the shortest time of some trials, because disturbances only add time."""
    step()
    shortest, began = float("inf"), time.perf_counter()
    for _ in range(_TRIALS):
        start = time.perf_counter()
        step()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        shortest = min(shortest, time.perf_counter() - start)
        if time.perf_counter() - began > _SECONDS:
            break
    return shortest


def _to_milliseconds(seconds: float) -> float:
    return round(1000 * seconds, 4)
