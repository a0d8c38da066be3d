"""Choose what an experiment leaves to the machine ("auto") by timing: layout of images, stack size, compilation.

Each choice can change the last bits of a run. So it is made once, before the first round, and becomes part of the run's
experiment: a resume and any number of workers use it. The usual option stays unless another one is clearly faster, so
that noise in the timings rarely decides.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from fedcm.config.sections import EngineSection
from fedcm.core.local.stacked import StackedProblem, reject_batch_dependent_model
from fedcm.core.problem import Problem
from fedcm.core.round_loop import TrainingPlan
from fedcm.data.batches import LocalWork
from fedcm.data.dataset import Examples
from fedcm.data.federated import FederatedData
from fedcm.errors import UserError
from fedcm.runs.timing import measure_shortest_time
from fedcm.system.error_messages import format_location
from fedcm.system.hardware import count_default_workers, use_one_thread

_WORTHWHILE = 0.9  # another option must take at most this share of the usual option's time
_TRIALS, _SECONDS = 7, 0.3  # how often, or how long, an option is timed
_TINY_STEP = 0.003  # seconds per step on a CPU; above it one client keeps a core busy
_STACKS = (4, 16, 64, 256)
# the settings that autotune chooses: the usual value, and how the timings of other values are called
_TUNED = {"stack": (1, "stack of "), "layout": ("channels_last", "contiguous"), "compile": ("off", "compiled")}
_LONG_RUN = 1200.0  # seconds of steps per process; above it a minute of compiling can be worthwhile


class AutotuneResult(NamedTuple):
    """The chosen engine, the settings that were chosen, and the timings: milliseconds per step of one client."""

    engine: EngineSection
    tuned_settings: tuple[str, ...]
    step_milliseconds: dict[str, float]


def tune_engine(
    engine: EngineSection, problem: Problem, data: FederatedData, local_work: LocalWork, plan: TrainingPlan
) -> AutotuneResult:
    """Replace every "auto" of an engine by the fastest option."""
    timings: dict[str, float] = {}
    tuned_settings = tuple(key for key in _TUNED if getattr(engine, key) == "auto")
    if tuned_settings:
        with use_one_thread(), torch.random.fork_rng(devices=[]):
            engine = _choose_engine(engine, problem, data, local_work, plan, timings)
    if engine.stack != 1 and engine.compile == "on":
        raise UserError(f'engine.compile = "on" needs engine.stack = 1, got {engine.stack}')
    return AutotuneResult(engine, tuned_settings, timings)


def list_tuned_settings(engine: Mapping[str, Any], provenance: Mapping[str, Any]) -> list[str]:
    """Return the settings of a run's engine that autotune chose.

    Runs of older versions do not record them. For these, the timings show what was chosen; a setting with its usual
    value counts as chosen if autotune ran, because the timings do not always show it.

    Args:
        engine: The engine of the run's experiment.
        provenance: The run's provenance.

    >>> list_tuned_settings({"stack": 16, "layout": "channels_last"}, {"tuned": ["stack"]})
    ['stack']
    >>> timings = {"one client": 0.4, "stack of 16": 0.1}
    >>> list_tuned_settings({"stack": 16, "layout": "channels_last"}, {"milliseconds_a_step": timings})
    ['stack', 'layout']
    >>> list_tuned_settings({"stack": 4, "compile": "on"}, {"milliseconds_a_step": {"one client": 0.4}})
    []
    """
    if isinstance(recorded := provenance.get("tuned"), list):
        return recorded
    step_milliseconds = provenance.get("milliseconds_a_step")
    if not step_milliseconds:
        return []
    tuned = []
    for key, (usual, timing) in _TUNED.items():
        timed = any(option.startswith(timing) for option in step_milliseconds)
        if key in engine and (timed or engine[key] == usual):
            tuned.append(key)
    return tuned


def _choose_engine(
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
    batch = _take_first_batch(first, local_work, problem)
    alone = _measure_step(lambda: problem.gradient(batch)(problem.initial_params))
    timings["one client"] = _to_milliseconds(alone)
    if engine.stack == "auto":
        most = (
            int(cohort // processes) if engine.compile != "on" else 1
        )  # fewer stacks than processes would leave some idle
        stack = _choose_stack(problem, first, batch, alone, most if data.is_stackable else 1, timings)
        engine = engine.model_copy(update={"stack": stack})
    if engine.compile == "auto":
        steps = local_work.count_steps(int(data.sizes(np.array([0]))[0]), plan.seed, 0, 0)
        seconds = alone * plan.rounds * cohort * steps / processes
        on = engine.stack == 1 and seconds > _LONG_RUN and _is_compiling_worthwhile(problem, batch, alone, timings)
        engine = engine.model_copy(update={"compile": "on" if on else "off"})
    return engine


def _compute_mean_cohort(plan: TrainingPlan) -> float:
    return float(np.mean([len(plan.draw_cohort(round).reporting) for round in range(5)]))


def _choose_layout(problem: Problem, data: FederatedData, local_work: LocalWork, timings: dict[str, float]) -> str:
    if not _has_images(data):
        return "channels_last"  # without images the layout does not matter
    times = {}
    for layout in ("channels_last", "contiguous"):
        first = data.prepare_for(problem.dtype, problem.device, layout).client(0)
        batch = _take_first_batch(first, local_work, problem)
        times[layout] = _measure_step(lambda: problem.gradient(batch)(problem.initial_params))  # noqa: B023
        timings[layout] = _to_milliseconds(times[layout])
    return "contiguous" if times["contiguous"] < _WORTHWHILE * times["channels_last"] else "channels_last"


def _has_images(data: FederatedData) -> bool:
    shape = data.input_shape
    return isinstance(shape, tuple) and len(shape) == 3 and all(isinstance(length, int) for length in shape)


def _choose_stack(
    problem: Problem, first: Examples, batch: Examples, alone: float, most: int, timings: dict[str, float]
) -> int:
    if most < 2 or (alone > _TINY_STEP and problem.device.type == "cpu"):
        return 1
    try:
        reject_batch_dependent_model(problem, first)
        stacked = StackedProblem(problem)
        best, shortest = 1, _WORTHWHILE * alone
        for size in sorted({min(size, most) for size in _STACKS}):
            examples = Examples(*[part.expand(size, *part.shape).contiguous() for part in batch])
            weights = problem.initial_params.new_full((size, batch.size), 1 / batch.size)
            params = problem.initial_params.expand(size, -1).contiguous()
            each = _measure_step(lambda: stacked.compute_gradient(params, examples, weights)) / size  # noqa: B023
            timings[f"stack of {size}"] = _to_milliseconds(each)
            if each < shortest:
                best, shortest = size, _WORTHWHILE * each
    except Exception:  # torch.func cannot handle the model: clients train one by one
        return 1
    return best


def _is_compiling_worthwhile(problem: Problem, batch: Examples, alone: float, timings: dict[str, float]) -> bool:
    try:
        problem.compile_for(batch.size)
        compiled = _measure_step(lambda: problem.gradient(batch)(problem.initial_params))
    except Exception:  # there is no compiler, or it cannot handle the model
        return False
    finally:
        problem.compile_for(None)
    timings["compiled"] = _to_milliseconds(compiled)
    return compiled < _WORTHWHILE * alone


def compile_model(problem: Problem, batch_size: int, data: Examples) -> None:
    """Compile the model now, so that no round waits for the compiler. Too few examples are repeated to a full batch.

    Raises:
        UserError: If torch.compile cannot handle the model.
    """
    index = torch.arange(batch_size, device=data.device) % data.size
    try:
        problem.compile_for(batch_size)
        with use_one_thread(), torch.random.fork_rng(devices=[]):
            problem.gradient(problem.collate(data.select(index)))(problem.initial_params)
    except Exception as error:
        what = str(error).strip().splitlines()
        raise UserError(
            f"torch.compile must be able to take the model {type(problem.model).__name__}, and failed: "
            f"{type(error).__name__}{': ' + what[0] if what else ''}{format_location(error)}; "
            'set engine.compile = "off"'
        ) from error


def _take_first_batch(data: Examples, local_work: LocalWork, problem: Problem) -> Examples:
    return problem.collate(data.slice(0, local_work.batch_size))


def _measure_step(step: Callable[[], Any]) -> float:
    return measure_shortest_time(step, _TRIALS, _SECONDS)


def _to_milliseconds(seconds: float) -> float:
    return round(1000 * seconds, 4)
