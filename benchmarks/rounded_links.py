"""What rounding vectors on their way does to FedCM: accuracy for each link of `[federation]`, and for all of them.

    python benchmarks/rounded_links.py                         digits, three seeds (minutes)
    python benchmarks/rounded_links.py cifar10 --seeds 1       real CIFAR-10; FEDCM_DATA names a prepared data folder

The same rounding as between server and sites (`fedcm.federation.compression`), in one process: same parameters at
the start, same cohorts, same batches. Accuracy in %, and bytes down and up in a round, of one client.
"""

import argparse
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fedcm.config.experiment import FederationSection, load_experiment
from fedcm.core.algorithm import Nothing, Round, Vector
from fedcm.core.evaluation import Score
from fedcm.core.executor import RoundResult
from fedcm.core.round_loop import run_rounds
from fedcm.executors.client_runner import ClientRunner
from fedcm.executors.local import empty_round, evaluate_model, summarise_round
from fedcm.federation.compression import packed_broadcast, packed_report, size_in_bytes, unpacked, unpacked_broadcast
from fedcm.runs.assembly import assemble

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
WORKS = {
    "digits": ("demo.toml", ["evaluation.every=10"]),
    "cifar10": ("cifar10-lenet.toml", ["rounds=100", "evaluation.every=5"]),
}
LINKS = {
    "exact": {},
    "momentum bfloat16": {"momentum": "bfloat16"},
    "momentum float16": {"momentum": "float16"},
    "parameters bfloat16": {"downlink": "bfloat16"},
    "parameters float16": {"downlink": "float16"},
    "reports bfloat16": {"uplink": "bfloat16"},
    "reports float16": {"uplink": "float16"},
    "all bfloat16": {"momentum": "bfloat16", "downlink": "bfloat16", "uplink": "bfloat16"},
    "all float16": {"momentum": "float16", "downlink": "float16", "uplink": "float16"},
}


class RoundedLinks:
    """All clients in this process; what passes between them and the server is rounded."""

    def __init__(self, runner: ClientRunner, links: FederationSection) -> None:
        self.runner = runner
        self.links = links
        self.bytes = 0  # of one client in a round

    def run_round(self, sent: Any, cohort: np.ndarray, round: Round) -> RoundResult:
        if not len(cohort):
            return empty_round(cohort)
        dtype, runner = sent.params.dtype, self.runner
        down = packed_broadcast(sent, self.links)
        arrived = unpacked_broadcast(type(sent), down, self.links, dtype)
        mean, weights, facts = runner.mean(sent.params, len(cohort)), runner.weights(cohort), np.zeros((len(cohort), 3))
        for place, client in enumerate(cohort.tolist()):
            done = runner.run(client, arrived, Nothing(), round)
            up = packed_report(done.report, self.links)
            report = type(done.report)(
                **{name: unpacked(array, self.links.uplink, dtype) for name, array in up.items()}
            )
            mean.add(client, report, weights[place])
            facts[place] = done.steps, done.loss, 0
            self.bytes = size_in_bytes(down) + size_in_bytes(up)
        return summarise_round(mean, weights, facts, cohort)

    def evaluate(self, params: Vector) -> Score | None:
        return evaluate_model(self.runner, params)


def scores(work: str, links: FederationSection, seed: int) -> tuple[list[float], int]:
    file, settings = WORKS[work]
    settings = [*settings, "algorithm.name=fedcm", f"seed={seed}", "engine.stack=1", "engine.compile=off"]
    assembly = assemble(load_experiment(EXPERIMENTS / file, settings, "fedcm"))
    executor = RoundedLinks(assembly.runner, links)
    server = assembly.algorithm.init_server(assembly.problem.initial())
    return list(_accuracies(run_rounds(assembly.algorithm, executor, assembly.plan, server))), executor.bytes


def _accuracies(rounds: Iterator[Any]) -> Iterator[float]:
    for done in rounds:
        if "test_accuracy" in done.metrics:
            yield 100 * done.metrics["test_accuracy"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", nargs="?", default="digits", choices=WORKS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", action="append", choices=LINKS, help="these links alone; may be repeated")
    asked = parser.parse_args()
    print("| data | links | bytes a client and round | last accuracy, % | mean of the last ten evaluations, % |")
    print("|---|---|---:|---:|---:|")
    for name, link in [(name, LINKS[name]) for name in asked.only or LINKS]:
        found = [scores(asked.work, FederationSection(**link), seed) for seed in range(1, asked.seeds + 1)]
        last = told([values[-1] for values, _ in found])
        ten = told([statistics.mean(values[-10:]) for values, _ in found])
        print(f"| {asked.work} | {name} | {found[0][1]:,} | {last} | {ten} |", flush=True)


def told(values: list[float]) -> str:
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{spread}"


if __name__ == "__main__":
    main()
