"""Repeat a recorded run in the simulator: the same experiment with the cohorts that counted, round by round.

A site that is lost changes the sum of its round. So a run in which processes were killed is not compared with the run
in which everybody always counted, but with a simulation, without any interruption, of the clients that counted.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scenes import finish_session

from fedcm.config.sections import Experiment
from fedcm.runs.build import TrainingSetup, build
from fedcm.runs.session import Session, SessionOptions


@dataclass(frozen=True)
class RecordedCohorts:
    """A participation whose cohorts are given."""

    cohorts: tuple[tuple[int, ...], ...]

    def cohort(self, population: int, seed: int, round: int) -> np.ndarray:
        return np.array(self.cohorts[round], dtype=np.int64)


def read_cohorts(run: Path) -> list[list[int]]:
    """Return the clients that counted in each round of a run."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == list(range(len(lines))), "every round is recorded once"
    return [line["clients"] for line in lines]


def replay(experiment: Experiment, cohorts: list[list[int]], folder: Path, name: str) -> Path:
    """Simulate an experiment with these cohorts and return the run's folder."""
    recorded = RecordedCohorts(tuple(map(tuple, cohorts)))

    def build_setup(chosen: Experiment, data_dir: Path | None) -> TrainingSetup:
        setup = build(chosen, data_dir)
        return replace(setup, plan=replace(setup.plan, participation=recorded))

    options: Any = SessionOptions(build_setup=build_setup)
    finish_session(Session.start(experiment, folder, name, options=options))
    return folder / name
