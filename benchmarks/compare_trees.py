"""Compare the time of a round with that of another checkout, alternating between the two.

    python benchmarks/compare_trees.py OTHER/src            prints this tree's time over the other's, per algorithm

Each measurement is the CPU time of a process of its own, with one thread. The median over the repeats is printed.
"""

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

ALGORITHMS = ("fedavg", "fedcm", "fedadam", "scaffold", "feddyn")
OWN = Path(__file__).parents[1] / "src"
PROGRAM = """
import sys, time, torch, fedcm
from torch import nn
torch.set_num_threads(1)
name, kind = sys.argv[1:]
draw = torch.Generator().manual_seed(0)
small = kind == "linear"
shape = (64,) if small else (3, 32, 32)
clients = [(torch.randn(100, *shape, generator=draw), torch.randint(10, (100,), generator=draw)) for _ in range(10)]
lenet = lambda: nn.Sequential(
    nn.Conv2d(3, 6, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(6, 16, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(),
    nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
)
model = nn.Linear(64, 10) if small else lenet()
algorithm = {"fedavg": fedcm.FedAvg, "fedcm": fedcm.FedCM, "fedadam": fedcm.FedAdam, "scaffold": fedcm.Scaffold,
             "feddyn": fedcm.FedDyn}[name]()
rounds = 40 if small else 4
settings = dict(rounds=rounds, epochs=5, batch_size=20, lr=0.01, server_lr=0.01)
fedcm.train(model, clients, algorithm, **settings | {"rounds": 1})
started = time.process_time()
fedcm.train(model, clients, algorithm, **settings)
print(time.process_time() - started)
"""


def measure(source: Path, algorithm: str, kind: str) -> float:
    """Return the seconds of a short training with the sources of one tree."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, algorithm, kind],
        env=os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout.split()[-1])


def main() -> None:
    """Print a line per model and algorithm."""
    parser = argparse.ArgumentParser(description="compare the time of a round with that of another checkout")
    parser.add_argument("other", type=Path, help="the folder src of the other checkout")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    for kind in ("linear", "lenet"):
        for algorithm in ALGORITHMS:
            ratios = []
            for _ in range(options.repeats):
                before = measure(options.other.absolute(), algorithm, kind)
                ratios.append(measure(OWN, algorithm, kind) / before)
            spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
            print(f"{kind:8} {algorithm:9} {statistics.median(ratios):.3f}  ({spread})", flush=True)


if __name__ == "__main__":
    main()
