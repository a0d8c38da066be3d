"""How `engine.client_states = "bfloat16"` affects SCAFFOLD and FedDyn: accuracy, and the drift of the server's vector
from the mean of the client states.

    python benchmarks/rounded_states.py                        digits, five seeds
    python benchmarks/rounded_states.py cifar10 --seeds 1      real CIFAR-10; FEDCM_DATA names a prepared data folder

Both kinds have the same initial parameters, cohorts and batches. The table is a section of ROUNDING.md.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from pages import write_rounding
from safetensors.torch import load_file

from fedcm.config.experiment import load_experiment_file

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
SECTION = """## Rounded client states, {work}

`{command}`: {rounds} rounds, {seeds}. Drift is ‖c − mean(c_i)‖ / ‖c‖ at the end (h for FedDyn),
the largest over the seeds. {machine}

| data | algorithm | states | last accuracy, % | mean of the last ten evaluations, % | drift |
|---|---|---|---:|---:|---:|
"""
WORKLOADS = {
    "digits": ("demo.toml", ["evaluation.every=10"], 100),
    "cifar10": ("cifar10-lenet.toml", ["rounds=60"], 500),
}
TRACKED = {"scaffold": "control", "feddyn": "correction"}  # the server's vector that is the mean of the client states
KINDS = {"exact": torch.float32, "bfloat16": torch.bfloat16}


def measure_run(work: str, algorithm: str, kind: str, seed: int, folder: Path) -> tuple[float, float, float]:
    """Return the last accuracy and the mean of the last ten evaluations, in percent, and the relative drift."""
    file, settings, population = WORKLOADS[work]
    words = ["run", str(EXPERIMENTS / file), "--seed", str(seed), "--runs-dir", str(folder), "--name", "one", "--json"]
    for setting in [*settings, f"algorithm.name={algorithm}", f"engine.client_states={kind}"]:
        words += ["--set", setting]
    subprocess.run([sys.executable, "-m", "fedcm", *words], capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in (folder / "one" / "metrics.jsonl").read_text().splitlines()]
    scores = [100 * line["test_accuracy"] for line in lines if "test_accuracy" in line]
    return scores[-1], statistics.mean(scores[-10:]), measure_drift(folder / "one", algorithm, KINDS[kind], population)


def measure_drift(run: Path, algorithm: str, dtype: torch.dtype, population: int) -> float:
    """Return ‖server's vector − mean of the client states‖ / ‖server's vector‖."""
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
    parser.add_argument("work", nargs="?", default="digits", choices=WORKLOADS)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    lines = []
    for algorithm in TRACKED:
        for kind in KINDS:
            rows = []
            for seed in range(1, options.seeds + 1):
                with tempfile.TemporaryDirectory() as folder:
                    rows.append(measure_run(options.work, algorithm, kind, seed, Path(folder)))
            last, ten, drifts = zip(*rows, strict=True)
            cells = [format_mean(last), format_mean(ten), f"{max(drifts):.1e}"]
            lines.append(f"| {options.work} | {algorithm} | {kind} | {' | '.join(cells)} |")
            print(lines[-1], flush=True)
    file, settings, _ = WORKLOADS[options.work]
    rounds = load_experiment_file(EXPERIMENTS / file, settings).rounds
    write_rounding(SECTION, lines, work=options.work, rounds=rounds, seeds=options.seeds)


def format_mean(values: tuple[float, ...]) -> str:
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{spread}"


if __name__ == "__main__":
    main()
