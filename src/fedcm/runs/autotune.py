"""What an experiment leaves to the machine, found by trying: the images' layout, clients at once, compilation.

Each choice can change the last bits of a run, so it is made once, before the first round, and becomes part of the run's
own experiment: a resume and any number of workers keep it. The usual way stays unless another is clearly faster, so
that chance in the timing rarely decides.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from fedcm.config.experiment import EngineSection
from fedcm.core.problem import Problem
from fedcm.core.round_loop import TrainingPlan
from fedcm.core.stacked import StackedProblem, reject_other_in_stack
from fedcm.data.batches import LocalWork, take
from fedcm.data.dataset import Examples
from fedcm.data.federated import FederatedData
from fedcm.errors import UserError
from fedcm.system.device import count_default_workers
from fedcm.system.faults import format_location
from fedcm.system.threads import one_thread

_PAYS = 0.9  # of the usual way's time, at most
_TRIALS, _SECONDS = 7, 0.3  # a way is timed so often, or for so long
_TINY = 0.003  # seconds a step on a CPU: past it one client keeps a core busy
_STACKS = (4, 16, 64, 256)
_LONG = 1200.0  # seconds of steps a process, from which on a minute of compiling may pay


class AutotuneResult(NamedTuple):
    engine: EngineSection
    measured: dict[str, float]  # milliseconds a step of one client, by what was tried


def tune_engine(
    engine: EngineSection, problem: Problem, data: FederatedData, local_work: LocalWork, plan: TrainingPlan
) -> AutotuneResult:
    """`engine` with every "auto" replaced."""
    measured: dict[str, float] = {}
    if "auto" in (engine.layout, engine.stack, engine.compile):
        with one_thread(), torch.random.fork_rng(devices=[]):
            engine = _tried(engine, problem, data, local_work, plan, measured)
    if engine.stack != 1 and engine.compile == "on":
        raise UserError(f"only clients one by one can be compiled; set engine.stack = 1, got {engine.stack}")
    return AutotuneResult(engine, measured)


def _tried(
    engine: EngineSection,
    problem: Problem,
    data: FederatedData,
    local_work: LocalWork,
    plan: TrainingPlan,
    measured: dict[str, float],
) -> EngineSection:
    processes, cohort = count_default_workers(engine.device), _mean_cohort(plan)
    if engine.layout == "auto":
        engine = engine.model_copy(update={"layout": _layout(problem, data, local_work, measured)})
    first = data.ready_for(problem.dtype, problem.device, engine.layout).client(0)
    batch = _first_batch(first, local_work)
    alone = _timed(lambda: problem.gradient(batch)(problem.initial()))
    measured["one client"] = _milliseconds(alone)
    if engine.stack == "auto":
        most = int(cohort // processes) if engine.compile != "on" else 1  # one without a stack would stand idle
        engine = engine.model_copy(update={"stack": _stack(problem, first, batch, alone, most, measured)})
    if engine.compile == "auto":
        seconds = alone * plan.rounds * cohort * local_work.count(int(data.sizes(np.array([0]))[0])) / processes
        on = engine.stack == 1 and seconds > _LONG and _compiling_pays(problem, batch, alone, measured)
        engine = engine.model_copy(update={"compile": "on" if on else "off"})
    return engine


def _mean_cohort(plan: TrainingPlan) -> float:
    return float(np.mean([len(plan.participation.cohort(plan.population, plan.seed, round)) for round in range(5)]))


def _layout(problem: Problem, data: FederatedData, local_work: LocalWork, measured: dict[str, float]) -> str:
    if len(data.input_shape) != 3:
        return "channels_last"  # says nothing where there are no images
    times = {}
    for layout in ("channels_last", "contiguous"):
        batch = _first_batch(data.ready_for(problem.dtype, problem.device, layout).client(0), local_work)
        times[layout] = _timed(lambda: problem.gradient(batch)(problem.initial()))  # noqa: B023
        measured[layout] = _milliseconds(times[layout])
    return "contiguous" if times["contiguous"] < _PAYS * times["channels_last"] else "channels_last"


def _stack(
    problem: Problem, first: Examples, batch: Examples, alone: float, most: int, measured: dict[str, float]
) -> int:
    if most < 2 or (alone > _TINY and problem.device.type == "cpu"):
        return 1
    try:
        reject_other_in_stack(problem, first)
        stacked = StackedProblem(problem)
        best, shortest = 1, _PAYS * alone
        for size in sorted({min(size, most) for size in _STACKS}):
            examples = Examples(*[part.expand(size, *part.shape).contiguous() for part in batch])
            weights = problem.initial().new_full((size, batch.size), 1 / batch.size)
            params = problem.initial().expand(size, -1).contiguous()
            each = _timed(lambda: stacked.at(params, examples, weights)) / size  # noqa: B023
            measured[f"stack of {size}"] = _milliseconds(each)
            if each < shortest:
                best, shortest = size, _PAYS * each
    except Exception:  # of a model that torch.func cannot take: it trains one by one
        return 1
    return best


def _compiling_pays(problem: Problem, batch: Examples, alone: float, measured: dict[str, float]) -> bool:
    try:
        problem.compile_for(batch.size)
        compiled = _timed(lambda: problem.gradient(batch)(problem.initial()))
    except Exception:  # no compiler here, or a model it cannot take
        return False
    finally:
        problem.compile_for(None)
    measured["compiled"] = _milliseconds(compiled)
    return compiled < _PAYS * alone


def compile_model(problem: Problem, batch_size: int, data: Examples) -> None:
    """Now, so that no round waits for the compiler; with examples repeated to a full batch, where there are too few."""
    index = torch.arange(batch_size, device=data.labels.device) % data.size
    try:
        problem.compile_for(batch_size)
        with one_thread(), torch.random.fork_rng(devices=[]):
            problem.gradient(Examples(take(data.features, index), data.labels[index]))(problem.initial())
    except Exception as error:
        what = str(error).strip().splitlines()
        raise UserError(
            f"torch.compile must be able to take the model {type(problem.model).__name__}, and failed: "
            f"{type(error).__name__}{': ' + what[0] if what else ''}{format_location(error)}; "
            'set engine.compile = "off"'
        ) from error


def _first_batch(data: Examples, local_work: LocalWork) -> Examples:
    return Examples(*[part[: local_work.batch_size] for part in data])


def _timed(step: Callable[[], Any]) -> float:
    """The shortest of some trials: what disturbs only ever adds."""
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


def _milliseconds(seconds: float) -> float:
    return round(1000 * seconds, 4)
