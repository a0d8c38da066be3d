"""How often `fedcm advise` is right: its α and η_l against a real sweep, on two data sets and two splits.

    FEDCM_DATA=… python benchmarks/advice.py            all four; --only digits for two (minutes), cifar10 the others

For each, the advice is asked for; then FedCM runs with every α of a grid at the advised η_l, and with every η_l of the
probe at the advised α, each with the advised value among them. Right: within a point of the best mean accuracy over the
last ten evaluations; the runs and what they gave are printed.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
ALPHAS = (0.02, 0.05, 0.1, 0.2, 0.4, 1.0)
SPLITS = {"iid": ["split.kind=iid"], "dirichlet-0.6": ["split.kind=dirichlet", "split.concentration=0.6"]}
WORKS = {
    "digits": ("demo.toml", ["rounds=200", "evaluation.every=5"], 3),
    "cifar10": ("cifar10-lenet.toml", ["rounds=150", "evaluation.every=5"], 1),
}
ENGINE = ["engine.stack=1", "engine.layout=channels_last", "engine.compile=off", "algorithm.name=fedcm"]
RIGHT = 1.0  # points from the best


def fedcm(*words: str) -> str:
    return subprocess.run([sys.executable, "-m", "fedcm", *words], capture_output=True, text=True, check=True).stdout


def with_settings(settings: list[str]) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]


def accuracy(work: str, split: str, alpha: float, rate: float, folder: Path) -> float:
    """Mean over seeds of the mean over the last ten evaluations, in percent; 0 for a run that diverged."""
    file, settings, seeds = WORKS[work]
    chosen = [*settings, *SPLITS[split], *ENGINE, f"algorithm.alpha={alpha}", f"client.lr={rate}"]
    means = []
    for seed in range(1, seeds + 1):
        name = f"{work}-{split}-{alpha}-{rate:.4g}-{seed}"
        words = ["run", str(EXPERIMENTS / file), "--runs-dir", str(folder), "--name", name, "--seed", str(seed)]
        done = subprocess.run(
            [sys.executable, "-m", "fedcm", *words, *with_settings(chosen)], capture_output=True, check=False
        )
        if done.returncode:
            means.append(0.0)
            continue
        lines = [json.loads(line) for line in (folder / name / "metrics.jsonl").read_text().splitlines()]
        scores = [100 * line["test_accuracy"] for line in lines if "test_accuracy" in line]
        means.append(statistics.mean(scores[-10:]))
    return statistics.mean(means)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=WORKS)
    asked = parser.parse_args()
    print("| data | split | advised | accuracy, % | every α at that η_l | every η_l at that α | α right | η_l right |")
    print("|---|---|---|---:|---|---|---|---|")
    for work in [asked.only] if asked.only else WORKS:
        for split in SPLITS:
            with tempfile.TemporaryDirectory() as folder:
                print(compared(work, split, Path(folder)), flush=True)


def compared(work: str, split: str, folder: Path) -> str:
    file, settings, _ = WORKS[work]
    words = ["advise", str(EXPERIMENTS / file), "--json", *with_settings([*settings, *SPLITS[split], *ENGINE])]
    advice = json.loads(fedcm(*words))
    alpha, rate, rates = advice["alpha"], advice["client_lr"], [float(rate) for rate in advice["losses"]]
    own = accuracy(work, split, alpha, rate, folder)
    by_alpha = {each: accuracy(work, split, each, rate, folder) for each in ALPHAS}
    by_rate = {each: accuracy(work, split, alpha, each, folder) for each in rates if abs(each - rate) > 1e-3 * rate}
    cells = [work, split, f"α {alpha:g}, η_l {rate:.3g}", f"{own:.2f}", told(by_alpha), told(by_rate)]
    cells += [verdict(own, by_alpha), verdict(own, by_rate)]
    return f"| {' | '.join(cells)} |"


def told(found: dict[float, float]) -> str:
    return ", ".join(
        f"{value:.3g}: {score:.1f}" if score else f"{value:.3g}: diverged" for value, score in found.items()
    )


def verdict(own: float, others: dict[float, float]) -> str:
    behind = max(others.values()) - own
    return "yes" if behind <= RIGHT else f"no, {behind:.1f} behind"


if __name__ == "__main__":
    main()
