"""Where the time of a step goes, as usually written and as this engine runs it: one process, one thread.

    python benchmarks/step_profile.py          LeNet and the CNN, into benchmarks/RESULTS.md
    python benchmarks/step_profile.py lenet    one of them, printed only

What convolutions and pooling take is torch's own and not to be had back by the engine; the rest is.
"""

import argparse
from collections.abc import Callable

import torch
import torch.nn.functional as F
from pages import RESULTS, machine, write_section
from torch.profiler import ProfilerActivity, profile
from usual_models import usual_model
from works import WORKS

from fedcm.data.dataset import Examples
from fedcm.memory import keep_freed_memory
from fedcm.models import build_model
from fedcm.problem import Problem

STEPS = 100
SECTION = """## Where a step's time goes

`python benchmarks/step_profile.py`: one process, one thread, by torch's profiler, which takes some of the time itself.
{machine} Convolutions and max-pool are torch's own kernels: the engine can only choose the layout. A LeNet step is
mostly these, and that is why it misses its target, which was set on a machine where channels_last won more. Tried
without gain: the pool by hand in two ways, channels padded to 8, convolution and pool as one convolution of 2×2 blocks,
the same as a matrix product over patches (the product takes half as long, gathering the patches eats it up),
torch.compile. Softmax regression: a quarter of the bare loop's 0.09 s a round on the machine where its target was set
is 0.0225 s.

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
REST = "the rest"


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


def spent(step: Callable[[], object]) -> dict[str, float]:
    """Milliseconds a step by kind of operation."""
    for _ in range(20):
        step()
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        for _ in range(STEPS):
            step()
    times = dict.fromkeys([*KINDS.values(), REST], 0.0)
    for event in profiled.key_averages():
        kind = next((kind for word, kind in KINDS.items() if word in event.key), REST)
        times[kind] += event.self_cpu_time_total / 1000 / STEPS
    return times


def profile_table(name: str) -> list[str]:
    work = WORKS[name]
    batch = Examples(torch.randn(work.batch, *work.shape), torch.randint(10, (work.batch,)))
    usual, engine = spent(usual_step(name, batch)), spent(engine_step(name, batch))
    rows = [(kind, usual[kind], engine[kind]) for kind in usual]
    rows.append(("all", sum(usual.values()), sum(engine.values())))
    lines = [
        f"| {name}: ms a step of {work.batch} | as usually written | in this engine | ratio |",
        "|---|---|---|---|",
    ]
    return lines + [f"| {kind} | {a:.2f} | {b:.2f} | {b / a if a else float('nan'):.2f} |" for kind, a, b in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", choices=["lenet", "cnn"])
    asked = parser.parse_args().model
    torch.set_num_threads(1)
    keep_freed_memory()
    tables = ["\n".join(profile_table(name)) for name in ([asked] if asked else ["lenet", "cnn"])]
    print("\n\n".join(tables))
    if asked is None:
        write_section("RESULTS.md", RESULTS, SECTION.format(machine=machine()) + "\n\n".join(tables))


if __name__ == "__main__":
    main()
