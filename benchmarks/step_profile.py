"""Where the time of a step goes, as usually written and as this engine runs it: one process, one thread.

    python benchmarks/step_profile.py          LeNet, the CNN and softmax regression, into benchmarks/RESULTS.md
    python benchmarks/step_profile.py lenet    one of them, printed only

What convolutions and pooling take is torch's own and not to be had back by the engine; the rest is.
"""

import argparse
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from pages import RESULTS, machine, write_section
from torch.profiler import ProfilerActivity, profile
from usual_models import usual_model
from works import WORKS

from fedcm.core.problem import Problem
from fedcm.core.stacked import StackedProblem
from fedcm.data.dataset import Examples
from fedcm.models import build_model
from fedcm.system.memory import keep_freed_memory

MODELS = ["lenet", "cnn", "linear"]
STEPS, WARM_UP = 100, 110  # by then a stack replays
SECTION = """## Where a step's time goes

`python benchmarks/step_profile.py`: one process, one thread, by torch's profiler, which takes some of the time itself.
{machine} Convolutions and max-pool are torch's own kernels: the engine can only choose the layout.
[What was tried](../docs/decisions/0007-what-a-step-costs.md) to make them faster.
Softmax regression: one step of 50 clients, one
after another and as a stack. What no operation of torch takes is Python.

"""
KINDS = {  # the first word that an operation's name holds
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


def usual_step(name: str, batch: Examples) -> Callable[[], object]:
    model = usual_model(name)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        optimiser.zero_grad()
        F.cross_entropy(model(batch.features), batch.labels).backward()
        optimiser.step()

    return step


def engine_step(name: str, batch: Examples) -> Callable[[], object]:
    problem = Problem(build_model(name, WORKS[name].shape, 10, {}, 0))
    params = problem.initial()
    last = Examples(batch.features.contiguous(memory_format=torch.channels_last), batch.labels)
    return lambda: params.sub_(problem.gradient(last)(params), alpha=0.01)


def one_by_one(name: str, batch: Examples, clients: int) -> Callable[[], object]:
    step = usual_step(name, batch)
    return lambda: [step() for _ in range(clients)]


def stacked_step(name: str, batch: Examples, clients: int) -> Callable[[], object]:
    problem = Problem(build_model(name, WORKS[name].shape, 10, {}, 0))
    stacked = StackedProblem(problem)
    params = problem.initial().repeat(clients, 1)
    examples = Examples(*[part.expand(clients, *part.shape).contiguous() for part in batch])
    weights = params.new_full((clients, batch.size), 1 / batch.size)
    return torch.no_grad()(lambda: params.sub_(stacked.at(params, examples, weights)[0], alpha=0.01))


def spent(step: Callable[[], object]) -> dict[str, float]:
    """Milliseconds a step by kind of operation."""
    for _ in range(WARM_UP):
        step()
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        began = time.perf_counter()
        for _ in range(STEPS):
            step()
        whole = 1000 * (time.perf_counter() - began) / STEPS
    times = dict.fromkeys([*KINDS.values(), REST], 0.0)
    for event in profiled.key_averages():
        kind = next((kind for word, kind in KINDS.items() if word in event.key), REST)
        times[kind] += event.self_cpu_time_total / 1000 / STEPS
    return times | {PYTHON: max(whole - sum(times.values()), 0.0)}


def profile_table(name: str) -> list[str]:
    work = WORKS[name]
    batch = Examples(torch.randn(work.batch, *work.shape), torch.randint(10, (work.batch,)))
    if work.stack > 1:
        title = f"ms a step of {work.batch} for {work.stack} clients"
        usual, engine = (spent(way(name, batch, work.stack)) for way in (one_by_one, stacked_step))
    else:
        title = f"ms a step of {work.batch}"
        usual, engine = (spent(way(name, batch)) for way in (usual_step, engine_step))
    rows = [(kind, usual[kind], engine[kind]) for kind in usual if usual[kind] or engine[kind]]
    rows.append(("all", sum(usual.values()), sum(engine.values())))
    lines = [f"| {name}: {title} | as usually written | in this engine | ratio |", "|---|---|---|---|"]
    return lines + [f"| {kind} | {a:.2f} | {b:.2f} | {b / a if a else float('nan'):.2f} |" for kind, a, b in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", choices=MODELS)
    asked = parser.parse_args().model
    torch.set_num_threads(1)
    keep_freed_memory()
    tables = ["\n".join(profile_table(name)) for name in ([asked] if asked else MODELS)]
    print("\n\n".join(tables))
    if asked is None:
        write_section("RESULTS.md", RESULTS, SECTION.format(machine=machine()) + "\n\n".join(tables))


if __name__ == "__main__":
    main()
