"""What `engine.client_states = "bfloat16"` does to SCAFFOLD and FedDyn: accuracy, and how far the server's vector
drifts from the mean of what clients keep.

    python benchmarks/rounded_states.py                        digits, five seeds
    python benchmarks/rounded_states.py cifar10 --seeds 1      real CIFAR-10; FEDCM_DATA names a prepared data folder

Both kinds start from the same parameters and see the same cohorts and batches.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
WORKS = {
    "digits": ("demo.toml", ["evaluation.every=10"], 100),
    "cifar10": ("cifar10-lenet.toml", ["rounds=60"], 500),
}
TRACKED = {"scaffold": "control", "feddyn": "correction"}  # the server's vector that is the mean of what clients keep
KINDS = {"exact": torch.float32, "bfloat16": torch.bfloat16}


def run(work: str, algorithm: str, kind: str, seed: int, folder: Path) -> tuple[float, float, float]:
    """Last accuracy and mean over the last ten evaluations, in percent; relative drift."""
    file, settings, population = WORKS[work]
    words = ["run", str(EXPERIMENTS / file), "--seed", str(seed), "--runs-dir", str(folder), "--name", "one", "--json"]
    for setting in [*settings, f"algorithm.name={algorithm}", f"engine.client_states={kind}"]:
        words += ["--set", setting]
    subprocess.run([sys.executable, "-m", "fedcm", *words], capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in (folder / "one" / "metrics.jsonl").read_text().splitlines()]
    scores = [100 * line["test_accuracy"] for line in lines if "test_accuracy" in line]
    return scores[-1], statistics.mean(scores[-10:]), drift(folder / "one", algorithm, KINDS[kind], population)


def drift(run: Path, algorithm: str, dtype: torch.dtype, population: int) -> float:
    """‖server's vector − mean of the stored ones‖ / ‖server's vector‖."""
    saved = load_file(sorted((run / "checkpoints").glob("*.safetensors"))[-1])
    server = saved[f"server.{TRACKED[algorithm]}"].double()
    raw = (
        torch.from_file(
            str(run / "clients" / "states.bin"), size=(run / "clients" / "states.bin").stat().st_size, dtype=torch.uint8
        )
        .view(dtype)
        .reshape(-1, len(server))
    )
    mean = raw[saved["client.@slots"]].double().sum(0) / population
    return float((server - mean).norm() / server.norm())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", nargs="?", default="digits", choices=WORKS)
    parser.add_argument("--seeds", type=int, default=5)
    asked = parser.parse_args()
    print("| data | algorithm | states | last accuracy, % | mean of the last ten evaluations, % | drift |")
    print("|---|---|---|---|---|---|")
    for algorithm in TRACKED:
        for kind in KINDS:
            rows = []
            for seed in range(1, asked.seeds + 1):
                with tempfile.TemporaryDirectory() as folder:
                    rows.append(run(asked.work, algorithm, kind, seed, Path(folder)))
            last, ten, drifts = zip(*rows, strict=True)
            cells = [told(last), told(ten), f"{max(drifts):.1e}"]
            print(f"| {asked.work} | {algorithm} | {kind} | {' | '.join(cells)} |", flush=True)


def told(values: tuple[float, ...]) -> str:
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{spread}"


if __name__ == "__main__":
    main()
