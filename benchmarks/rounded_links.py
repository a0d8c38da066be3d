"""How rounding the messages affects FedCM: accuracy with each link of `[federation]` rounded, and with all of them.

    python benchmarks/rounded_links.py                         digits, three seeds (minutes)
    python benchmarks/rounded_links.py cifar10 --seeds 1       real CIFAR-10; FEDCM_DATA names a prepared data folder

The rounding is the same as between server and sites (`fedcm.federation.compression`), but in one process, with the same
initial parameters, cohorts and batches. Writes the accuracy in %, and the bytes down and up per client and round, to a
section of ROUNDING.md.
"""

import argparse
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from pages import write_rounding

from fedcm.config.experiment import load_experiment_file
from fedcm.config.sections import FederationSection
from fedcm.core.algorithm import Nothing, Round, Vector
from fedcm.core.evaluation import Score
from fedcm.core.executor import RoundResult
from fedcm.core.round_loop import run_rounds
from fedcm.executors.client_runner import ClientRunner
from fedcm.executors.local import evaluate_model, make_empty_result, summarise_round
from fedcm.federation.compression import count_array_bytes, pack_broadcast, pack_report, unpack, unpack_broadcast
from fedcm.runs.build import build

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
SECTION = """## Rounded messages, {work}

`{command}`: FedCM, {rounds} rounds, {seeds}. {machine}

| data | links | bytes per client and round | last accuracy, % | mean of the last ten evaluations, % |
|---|---|---:|---:|---:|
"""
WORKLOADS = {
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
    """An executor with all clients in this process and rounded messages."""

    def __init__(self, runner: ClientRunner, links: FederationSection) -> None:
        self.runner = runner
        self.links = links
        self.bytes = 0  # per client and round

    def run_round(self, sent: Any, cohort: np.ndarray, round: Round) -> RoundResult:
        if not len(cohort):
            return make_empty_result(cohort)
        dtype, runner = sent.params.dtype, self.runner
        down = pack_broadcast(sent, self.links)
        received = unpack_broadcast(type(sent), down, self.links, dtype)
        reports, weights = runner.start_reports(received, cohort, round), runner.compute_weights(cohort)
        client_stats = np.zeros((len(cohort), 3))
        for place, client in enumerate(cohort.tolist()):
            done = runner.run_client(client, received, Nothing(), round)
            up = pack_report(done.report, self.links)
            report = type(done.report)(**{name: unpack(array, self.links.uplink, dtype) for name, array in up.items()})
            reports.add_stack([client], report, [weights[place]])
            client_stats[place] = done.steps, done.loss, 0
            self.bytes = count_array_bytes(down) + count_array_bytes(up)
        return summarise_round(runner, reports, weights, client_stats, cohort)

    def evaluate(self, params: Vector) -> dict[str, Score]:
        return evaluate_model(self.runner, params)


def measure_scores(work: str, links: FederationSection, seed: int) -> tuple[list[float], int]:
    file, settings = WORKLOADS[work]
    settings = [*settings, "algorithm.name=fedcm", f"seed={seed}", "engine.stack=1", "engine.compile=off"]
    setup = build(load_experiment_file(EXPERIMENTS / file, settings, "fedcm"))
    executor = RoundedLinks(setup.runner, links)
    server = setup.algorithm.init_server(setup.problem.initial_params)
    return list(_list_accuracies(run_rounds(setup.algorithm, executor, setup.plan, server))), executor.bytes


def _list_accuracies(rounds: Iterator[Any]) -> Iterator[float]:
    for done in rounds:
        if done.metrics.test_accuracy is not None:
            yield 100 * done.metrics.test_accuracy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", nargs="?", default="digits", choices=WORKLOADS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", action="append", choices=LINKS, help="only this link; may be repeated")
    options = parser.parse_args()
    lines = []
    for name, link in [(name, LINKS[name]) for name in options.only or LINKS]:
        scores = [measure_scores(options.work, FederationSection(**link), seed) for seed in range(1, options.seeds + 1)]
        last = format_mean([values[-1] for values, _ in scores])
        ten = format_mean([statistics.mean(values[-10:]) for values, _ in scores])
        lines.append(f"| {options.work} | {name} | {scores[0][1]:,} | {last} | {ten} |")
        print(lines[-1], flush=True)
    file, settings = WORKLOADS[options.work]
    rounds = load_experiment_file(EXPERIMENTS / file, settings).rounds
    write_rounding(SECTION, lines, work=options.work, rounds=rounds, seeds=options.seeds)


def format_mean(values: list[float]) -> str:
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{spread}"


if __name__ == "__main__":
    main()
