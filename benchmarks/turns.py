"""Time the rounds of two experiments in turn, in one process, so that noise affects both equally."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from fedcm.config.sections import Experiment
from fedcm.core.round_loop import run_rounds
from fedcm.executors.local import LocalExecutor
from fedcm.runs.build import build


@dataclass(frozen=True)
class Ratios:
    """The seconds of the rounds of two experiments, without the first round of each."""

    seconds: Mapping[str, list[float]]  # by contestant: the one in the denominator first

    def format(self, digits: int, note: str = "") -> str:
        """Return cells of a table: the median ratio with a note, its quartiles, and the median seconds."""
        below, above = self.seconds.values()
        low, middle, high = statistics.quantiles([b / a for a, b in zip(below, above, strict=True)], n=4)
        medians = " | ".join(f"{statistics.median(times):.3f}" for times in self.seconds.values())
        return f"{middle:.{digits}f}{note} | {low:.{digits}f}–{high:.{digits}f} | {medians}"


def time_in_turn(experiments: Mapping[str, Experiment], rounds: int) -> Ratios:
    """Run the experiments round by round in turn; the order changes from round to round."""
    runs, times = {}, {name: list[float]() for name in experiments}
    for name, experiment in experiments.items():
        setup = build(experiment)
        server = setup.algorithm.init_server(setup.problem.initial_params)
        runs[name] = run_rounds(setup.algorithm, LocalExecutor(setup.runner), setup.plan, server)
    for k in range(rounds):
        for name in sorted(runs, reverse=bool(k % 2)):
            times[name].append(next(runs[name]).metrics.seconds)
    return Ratios({name: seconds[1:] for name, seconds in times.items()})


def format_pairs(rounds: Mapping[str, int]) -> str:
    """Return how many pairs of rounds each model has, in words."""
    return ", ".join(f"{count - 1} ({name})" for name, count in rounds.items())
