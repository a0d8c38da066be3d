"""How often `fedcm advise` is right: its α and η_l compared with a full sweep, on two data sets and two splits.

    FEDCM_DATA=… python benchmarks/advice.py      all, more than an hour; --only digits: a quarter of an hour

For each data set, split and seed, it runs a sweep of FedCM over six α and three η_l (`fedcm sweep`, so finished
runs are not repeated), a probe, and a run with the advised values. Accuracy is the mean of the last ten
evaluations. A row shows how far the advice is behind the best α at its own η_l, and behind the best of all eighteen
pairs. Each data set is a section of ADVICE.md.
"""

import argparse
import json
import math
import statistics
import subprocess
import sys
import tomllib
from pathlib import Path

from pages import describe_machine, get_command, write_section

from fedcm.system.formatting import format_signed

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
ALPHAS = (0.02, 0.05, 0.1, 0.2, 0.4, 1.0)
RATES = (0.0333, 0.1, 0.3)
WORKLOADS = {  # file, rounds, rounds of the probes, seeds per split
    "digits": ("demo.toml", 200, (50, 200), {"dirichlet": 3, "iid": 3}),
    "cifar10": ("cifar10-lenet.toml", 150, (12, 40), {"dirichlet": 2, "iid": 1}),
}
TITLES = {"digits": "digits", "cifar10": "CIFAR-10"}
PAGE = """# How often `fedcm advise` is right

Each section was written by the command that it names. For every split and seed it runs a sweep of FedCM over α and η_l,
then the advice, then a run with the advice."""
SECTION = """## Advice, {work}

`{command}`: {rounds} rounds; the sweep has α = {alphas} and η_l = {rates}. Accuracies are on the test data in %,
the mean of the last ten evaluations. FedAvg is α = 1 at η_l = 0.1. {machine}

"""
HEAD = """| data | split | seed | probe rounds | advice | accuracy | best α at that η_l | best of the 18 | FedAvg \
| behind the best α | behind the best of 18 |
|---|---|---:|---|---|---:|---:|---:|---:|---:|---:|"""


def run_fedcm(*words: object) -> str:
    """Run a command and return its output; exit code 1 means that some runs diverged."""
    done = subprocess.run(
        [sys.executable, "-m", "fedcm", *map(str, words)], stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode not in (0, 1):
        sys.exit(done.returncode)
    return done.stdout


def run_sweep(work: str, split: str, runs: Path) -> dict[tuple[int, float, float], Path]:
    """Run the sweep; return the runs by seed, α and η_l."""
    file, rounds, _, seeds = WORKLOADS[work]
    over = (f"split.kind={split}", f"algorithm.alpha={_join(ALPHAS)}", f"client.lr={_join(RATES)}")
    words = [word for setting in over for word in ("--over", setting)]
    chosen = ["--algorithms", "fedcm", "--set", f"rounds={rounds}", "--seed", 1, "--seeds", seeds[split]]
    summaries = json.loads(run_fedcm("sweep", EXPERIMENTS / file, *words, *chosen, "--runs-dir", runs / work, "--json"))
    by_values = {}
    for run in (runs / work / summary["name"] for summary in summaries.values()):
        table = tomllib.loads((run / "experiment.toml").read_text())
        by_values[table["seed"], table["algorithm"]["alpha"], table["client"]["lr"]] = run
    return by_values


def _join(values: tuple[float, ...]) -> str:
    return ",".join(map(str, values))


def compute_accuracy(run: Path) -> float:
    """Return the mean of the last ten evaluations in percent, or 0 for a run that diverged."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    finished = json.loads((run / "summary.json").read_text())["outcome"] == "finished"
    scores = [100 * line["test_accuracy"] for line in lines if "test_accuracy" in line]
    return statistics.mean(scores[-10:]) if finished else 0.0


def compare_advice(
    work: str, split: str, seed: int, probe: int, runs: Path, by_values: dict[tuple[int, float, float], Path]
) -> list[str]:
    """Return one row: the advice of a probe, the run with it, and the sweep's runs with this seed."""
    file, rounds, _, _ = WORKLOADS[work]
    chosen = ["--seed", seed, "--set", f"rounds={rounds}", "--set", f"split.kind={split}"]
    advice = json.loads(run_fedcm("advise", EXPERIMENTS / file, *chosen, "--rounds", probe, "--json"))
    alpha, rate = advice["alpha"], round(advice["client_lr"], 4)
    name = f"advised-{split}-{alpha}-{rate}-seed{seed}"
    values = ["--set", "algorithm.name=fedcm", "--set", f"algorithm.alpha={alpha}", "--set", f"client.lr={rate}"]
    if not (runs / work / name / "summary.json").is_file():
        words = ["--runs-dir", runs / work, "--name", name, "--fresh", "--json"]
        run_fedcm("run", EXPERIMENTS / file, *chosen, *values, *words)
    own = compute_accuracy(runs / work / name)
    scores = {(each, at): compute_accuracy(by_values[seed, each, at]) for each in ALPHAS for at in RATES}
    best_here = max(((value, each) for (each, at), value in scores.items() if at == rate), default=(math.nan, alpha))
    best = max((value, pair) for pair, value in scores.items())
    cells = [TITLES[work], split, seed, f"{advice['probe']['rounds']} of {rounds}", f"α {alpha:g}, η_l {rate:g}"]
    cells += [f"{own:.2f}", f"{best_here[0]:.2f} (α {best_here[1]:g})"]
    cells += [f"{best[0]:.2f} (α {best[1][0]:g}, η_l {best[1][1]:g})", f"{scores[1.0, 0.1]:.2f}"]
    cells += [format_signed(value - own).removeprefix("+") for value in (best_here[0], best[0])]
    return [str(cell) for cell in cells]


def measure(work: str, runs: Path) -> None:
    """Measure one data set and write its section."""
    _, rounds, probes, seeds = WORKLOADS[work]
    by_split = {split: run_sweep(work, split, runs) for split in seeds}
    cases = [(probe, split, seed + 1) for probe in probes for split in seeds for seed in range(seeds[split])]
    lines = [HEAD]
    for probe, split, seed in cases:
        lines.append(f"| {' | '.join(compare_advice(work, split, seed, probe, runs, by_split[split]))} |")
        print(lines[-1], flush=True)
    values = {"alphas": ", ".join(f"{alpha:g}" for alpha in ALPHAS), "rates": ", ".join(f"{rate:g}" for rate in RATES)}
    described = {"command": get_command(), "machine": describe_machine()}
    text = SECTION.format(work=TITLES[work], rounds=rounds, **values, **described)
    write_section("ADVICE.md", PAGE, text + "\n".join(lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=WORKLOADS)
    parser.add_argument("--runs-dir", type=Path, default=Path("runs/advice"))
    options = parser.parse_args()
    for work in [options.only] if options.only else WORKLOADS:
        measure(work, options.runs_dir)


if __name__ == "__main__":
    main()
