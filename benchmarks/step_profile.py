"""Profile a step as usually written and as this engine runs it, in one process with one thread.

    python benchmarks/step_profile.py          LeNet, the CNN and softmax regression, written to benchmarks/RESULTS.md
    python benchmarks/step_profile.py lenet    one of them, only printed

Convolutions and pooling are torch kernels that the engine cannot speed up; it can speed up the rest.
"""

import argparse
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from pages import RESULTS, describe_machine, write_section
from plain_models import build_plain_model
from torch.profiler import ProfilerActivity, profile
from workloads import WORKLOADS

from fedcm.core.local.stacked import StackedProblem
from fedcm.core.problem import Problem
from fedcm.data.dataset import Examples
from fedcm.models import build_model
from fedcm.system.memory import keep_freed_memory

MODELS = ["lenet", "cnn", "linear"]
STEPS, WARM_UP = 100, 110  # after that many steps a stack is replayed
SECTION = """## Where a step's time goes

`python benchmarks/step_profile.py`: one process, one thread, measured by torch's profiler, which takes some time
itself. {machine} Convolutions and max-pool are torch kernels: the engine can only choose the layout ([what was
tried](../docs/decisions/0007-what-a-step-costs.md) to make them faster). Softmax regression: one step of 50
clients, one after another and as a stack. "Python" is the time outside torch operations.

"""
KINDS = {  # part of an operation's name -> kind; the first match counts
    "convolution": "convolutions",
    "max_pool2d": "max-pool",
    "threshold": "ReLU",
    "relu": "ReLU",
    "clamp_min": "ReLU",
    "mm": "dense layers",
    "reorder": "changes of layout",
    "copy_": "changes of layout",
}
REST, PYTHON = "the rest", "Python"


def build_plain_step(name: str, batch: Examples) -> Callable[[], object]:
    model = build_plain_model(name)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        optimiser.zero_grad()
        F.cross_entropy(model(batch.features), batch.labels).backward()
        optimiser.step()

    return step


def build_engine_step(name: str, batch: Examples) -> Callable[[], object]:
    problem = Problem(build_model(name, WORKLOADS[name].shape, 10, {}, 0))
    params = problem.initial_params
    last = Examples(batch.features.contiguous(memory_format=torch.channels_last), batch.labels)
    return lambda: params.sub_(problem.gradient(last)(params), alpha=0.01)


def build_plain_steps(name: str, batch: Examples, clients: int) -> Callable[[], object]:
    step = build_plain_step(name, batch)
    return lambda: [step() for _ in range(clients)]


def build_stacked_step(name: str, batch: Examples, clients: int) -> Callable[[], object]:
    problem = Problem(build_model(name, WORKLOADS[name].shape, 10, {}, 0))
    stacked = StackedProblem(problem)
    params = problem.initial_params.repeat(clients, 1)
    examples = Examples(*[part.expand(clients, *part.shape).contiguous() for part in batch])
    weights = params.new_full((clients, batch.size), 1 / batch.size)
    return torch.no_grad()(lambda: params.sub_(stacked.compute_gradient(params, examples, weights)[0], alpha=0.01))


def profile_step(step: Callable[[], object]) -> dict[str, float]:
    """Return the milliseconds per step by kind of operation."""
    for _ in range(WARM_UP):
        step()
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        began = time.perf_counter()
        for _ in range(STEPS):
            step()
        total = 1000 * (time.perf_counter() - began) / STEPS
    times = dict.fromkeys([*KINDS.values(), REST], 0.0)
    for event in profiled.key_averages():
        kind = next((kind for word, kind in KINDS.items() if word in event.key), REST)
        times[kind] += event.self_cpu_time_total / 1000 / STEPS
    return times | {PYTHON: max(total - sum(times.values()), 0.0)}


def make_profile_table(name: str) -> list[str]:
    work = WORKLOADS[name]
    batch = Examples(torch.randn(work.batch, *work.shape), torch.randint(10, (work.batch,)))
    if work.stack > 1:
        title = f"ms per step of {work.batch} for {work.stack} clients"
        plain, engine = (
            profile_step(build(name, batch, work.stack)) for build in (build_plain_steps, build_stacked_step)
        )
    else:
        title = f"ms per step of {work.batch}"
        plain, engine = (profile_step(build(name, batch)) for build in (build_plain_step, build_engine_step))
    rows = [(kind, plain[kind], engine[kind]) for kind in plain if plain[kind] or engine[kind]]
    rows.append(("all", sum(plain.values()), sum(engine.values())))
    lines = [f"| {name}: {title} | as usually written | in this engine | ratio |", "|---|---|---|---|"]
    return lines + [f"| {kind} | {a:.2f} | {b:.2f} | {b / a if a else float('nan'):.2f} |" for kind, a, b in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", choices=MODELS)
    model = parser.parse_args().model
    torch.set_num_threads(1)
    keep_freed_memory()
    tables = ["\n".join(make_profile_table(name)) for name in ([model] if model else MODELS)]
    print("\n\n".join(tables))
    if model is None:
        write_section("RESULTS.md", RESULTS, SECTION.format(machine=describe_machine()) + "\n\n".join(tables))


if __name__ == "__main__":
    main()
