"""How unequal honest reports are, beside the defaults of `federation.norm_ratio` and `federation.min_cosine`.

    python benchmarks/norm_ratios.py

Every row is a simulation of honest sites on digits. It writes to NORM_RATIOS.md, over all rounds and sites, the largest
norm of a report (of its difference from the server's guess, if the algorithm has one) in units of the round's median
norm, the share of reports above 5 times the median, the largest influence and the lowest cosine with the median report.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pages import describe_machine, write_section

from fedcm.config.experiment import read_experiment
from fedcm.core.aggregation import ReportSum, ReportTable
from fedcm.core.algorithm import Round
from fedcm.core.exact_mean import ExactMean
from fedcm.core.round_loop import run_rounds
from fedcm.executors.local import LocalExecutor
from fedcm.federation.server.reports.screening import measure_cosines, measure_influence
from fedcm.runs.build import build

HEAD = """# How unequal honest reports are

Written by `python benchmarks/norm_ratios.py`."""
SECTION = """## Largest norms, largest shares and lowest cosines

Honest sites on digits: {rounds} rounds, seeds {seeds}. {machine}

| split | algorithm | sites | largest ratio | above 5 | largest share | lowest cosine |
|---|---|---|---|---|---|---|
"""
ROUNDS, SEEDS = 30, (1, 2)
SPLITS: dict[str, dict[str, Any]] = {
    "IID": {"kind": "iid"},
    "Dirichlet 0.1, equal sizes": {"kind": "dirichlet", "concentration": 0.1},
    "one label shard each": {"kind": "shards", "per_client": 1},
    "Dirichlet 0.1 by label, unequal sizes": {"kind": "dirichlet-by-label", "concentration": 0.1},
    "Dirichlet 0.5 by label, unequal sizes": {"kind": "dirichlet-by-label", "concentration": 0.5},
}


@dataclass
class Measured:
    ratios: list[float] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)
    cosines: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class MeasuringMean:
    """The plain mean, which notes the norms of the reports."""

    algorithm: Any
    measured: Measured

    def start_round(self, template: Any, sent: Any, cohort: np.ndarray, round: Round) -> ReportSum:
        guess = self.algorithm.expected_report(sent)
        return _MeasuringTable(ReportTable(ExactMean(template, len(cohort)), cohort), guess, self.measured)


class _MeasuringTable(ReportSum):
    def __init__(self, table: ReportTable, guess: Any, measured: Measured) -> None:
        self._table, self._guess, self._measured = table, guess, measured

    @property
    def sum(self) -> ExactMean[Any]:
        return self._table.sum

    def add_stack(self, clients: Sequence[int], report: Any, weights: Sequence[float]) -> None:
        self._table.add_stack(clients, report, weights)

    def compute(self, clients: np.ndarray, weights: np.ndarray) -> Any:
        reports = {client: tuple(field[client] for field in self._table.fields) for client in clients.tolist()}
        guess = [0.0 for _ in self._table.fields] if self._guess is None else [part.double() for part in self._guess]
        apart = [[part.double() - at for part, at in zip(own, guess, strict=True)] for own in reports.values()]
        norms = np.sqrt([sum(float(part.square().sum()) for part in own) for own in apart])
        self._measured.ratios += (norms / np.sort(norms)[(len(norms) - 1) // 2]).tolist()
        by_client = dict(zip(clients.tolist(), weights.tolist(), strict=True))
        influence = measure_influence(reports, by_client, measure_cosines(reports))
        self._measured.shares += [one.share for one in influence.values()]
        self._measured.cosines += [one.cosine for one in influence.values()]
        return self._table.compute(clients, weights)


def measure(split: dict[str, Any], algorithm: str, sites: int, seed: int, rounds: int = ROUNDS) -> Measured:
    """Simulate honest sites."""
    setup = build(
        read_experiment(
            {
                "name": "norms",
                "rounds": rounds,
                "seed": seed,
                "split": {**split, "clients": sites},
                "model": {"name": "mlp", "hidden": [32]},
                "algorithm": {"name": algorithm},
                "client": {"epochs": 1, "batch_size": 20, "lr": 0.1},
                "evaluation": {"every": rounds},
                "engine": {"stack": sites, "layout": "channels_last", "compile": "off"},
            }
        )
    )
    measured = Measured()
    object.__setattr__(setup.runner, "aggregation", MeasuringMean(setup.algorithm, measured))
    for _ in run_rounds(setup.algorithm, LocalExecutor(setup.runner), setup.plan, setup.init_server()):
        pass
    return measured


def main() -> None:
    lines = []
    for name, split in SPLITS.items():
        for algorithm in ("fedavg", "fedcm", "scaffold"):
            for sites in (3, 10):
                runs = [measure(split, algorithm, sites, seed) for seed in SEEDS]
                ratios = np.concatenate([run.ratios for run in runs])
                share = max(max(run.shares) for run in runs)
                cosine = min(min(run.cosines) for run in runs)
                lines.append(
                    f"| {name} | {algorithm} | {sites} | {ratios.max():.1f} | {np.mean(ratios > 5):.1%} | {share:.2f} "
                    f"| {cosine:.2f} |"
                )
                print(lines[-1], flush=True)
    seeds = " and ".join(map(str, SEEDS))
    section = SECTION.format(rounds=ROUNDS, seeds=seeds, machine=describe_machine())
    write_section("NORM_RATIOS.md", HEAD, section + "\n".join(lines))


if __name__ == "__main__":
    main()
