"""Runs that differ in nothing but their seed, as one place of a table."""

import math
import statistics
from dataclasses import dataclass
from typing import final

from fedcm.reports.digest import Digest
from fedcm.reports.metric import ACCURACY, Metric
from fedcm.reports.outcome import divergence

MEASURES = {"mean_last": "mean of the last rounds", "last": "last round", "best": "best round"}
MAIN = "mean_last"


@final
@dataclass(frozen=True)
class Entry:
    runs: tuple[Digest, ...]
    metric: Metric = ACCURACY

    @property
    def counted(self) -> tuple[Digest, ...]:
        """Finished and diverged runs; if there are none, the unfinished ones."""
        return tuple(run for run in self.runs if run.state in ("finished", "diverged")) or self.runs

    def values(self, measure: str = MAIN) -> list[float]:
        """As they are shown, one per run that was evaluated; none where one diverged."""
        if self.diverged:
            return []
        return [self.metric.scale * found[measure] for run in self.counted if (found := read_figures(run, self.metric))]

    def gains(self) -> dict[int, float]:
        """The main measure by seed, so that more is better; a run that diverged is below everything."""
        found: dict[int, float] = {}
        for run in self.counted:
            figures = read_figures(run, self.metric)
            if run.diverged_in is not None:
                found[run.seed] = -math.inf
            elif figures:
                found[run.seed] = self.metric.gain(self.metric.scale * figures[MAIN])
        return found

    def mean(self, measure: str = MAIN) -> float | None:
        values = self.values(measure)
        return statistics.fmean(values) if values else None

    def deviation(self, measure: str = MAIN) -> float | None:
        """Over seeds, of a sample; one seed has none."""
        values = self.values(measure)
        return statistics.stdev(values) if len(values) > 1 else None

    def write(self, measure: str = MAIN) -> str:
        """
        >>> Entry(()).write()
        '–'
        """
        mean, deviation = self.mean(measure), self.deviation(measure)
        if mean is None:
            return self.diverged or "–"
        spread = "" if deviation is None else f" ± {self.metric.write_deviation(deviation)}"
        return self.metric.write(mean) + spread

    @property
    def averaged_rounds(self) -> set[int]:
        """How many of the last rounds the main measure is over; nothing where there is none because a run diverged."""
        found = [] if self.diverged else [read_figures(run, self.metric) for run in self.counted]
        return {int(figures["mean_last_rounds"]) for figures in found if figures}

    @property
    def published(self) -> float | None:
        """A published figure is an accuracy in percent."""
        known = (run.published for run in self.runs if run.published is not None)
        return next(known, None) if self.metric is ACCURACY else None

    @property
    def over(self) -> bool:
        return all(run.state in ("finished", "diverged") for run in self.counted)

    @property
    def judged(self) -> bool:
        """Is it over, with a figure or without one because it diverged?"""
        return self.over and bool(self.values() or self.diverged)

    @property
    def diverged(self) -> str:
        """In words, in place of a figure; nothing where no run did."""
        return divergence([run.diverged_in for run in self.counted])


def read_figures(run: Digest, metric: Metric) -> dict[str, float] | None:
    """As `fedcm.runs.summary.describe` has them."""
    return run.accuracy if metric is ACCURACY else run.test_losses
