"""Where the time of a step goes, as usually written and as this engine runs it: one process, one thread.

    python benchmarks/step_profile.py lenet    printed only; `make bench` puts it into RESULTS.md

What convolutions and pooling take is torch's own and not to be had back by the engine; the rest is.
"""

import argparse
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile
from usual_models import usual_model
from works import WORKS

from fedcm.data.dataset import Examples
from fedcm.models import build_model
from fedcm.problem import Problem

STEPS = 100
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
    parser.add_argument("model", nargs="?", default="lenet", choices=["lenet", "cnn"])
    torch.set_num_threads(1)
    print("\n".join(profile_table(parser.parse_args().model)))


if __name__ == "__main__":
    main()
