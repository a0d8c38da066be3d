"""One measurement of `fedcm theory rates` (a point), and an experiment: points that differ in one quantity."""

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, final

import torch
from torch import Tensor

from fedcm.theory.problems.known_problem import KnownProblem
from fedcm.theory.theorem.bounds import Setting

Case = Literal["strongly convex", "general convex", "not convex"]
Steps = Literal["tuned", "averaging", "proof"]
Claim = float | Literal["grows"] | None  # an exponent, that the error grows at all, or nothing
CLIENT_LRS = (0.00125, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08)  # the grid of "averaging", where no other is given
LABELS = {"fedcm": "FedCM", "fedavg": "FedAvg", "scaffold": "SCAFFOLD", "feddyn": "FedDyn"}


class Replicates(NamedTuple):
    chosen_by: int  # to choose step sizes
    measured: int


FULL, FEW, QUICK = Replicates(8, 40), Replicates(4, 12), Replicates(4, 8)


@final
@dataclass(frozen=True)
class Point:
    """One value of what is varied, and everything else."""

    value: float
    problem: KnownProblem
    rounds: int = 500  # T
    steps: int = 5  # K
    cohort: int = 10  # S
    alpha: float = 0.1  # of FedCM
    offset: float | None = 1.0  # x_0 − x* in every coordinate; None starts at 0

    @property
    def start(self) -> Tensor:
        """x_0."""
        optimum = self.problem.optimum
        return torch.zeros_like(optimum) if self.offset is None else optimum + self.offset

    @property
    def distance(self) -> float:
        """D."""
        return float((self.start - self.problem.optimum).square().sum())

    @property
    def excess(self) -> float:
        """F."""
        return float(self.problem.value(self.start)) - self.problem.least

    def setting(self, gradient_bound: float = 0.0, **constants: float) -> Setting:
        """With the problem's constants, but for those given."""
        known = self.problem.constants._replace(**constants)
        return Setting(known, gradient_bound, self.problem.clients, self.cohort, self.steps, self.alpha)


@final
@dataclass(frozen=True)
class Experiment:
    name: str
    case: Case
    varied: str  # its letter
    points: tuple[Point, ...]
    proven: dict[str, Claim]  # by algorithm
    steps: Steps = "tuned"
    note: str = ""
    replicates: Replicates = FULL
    times: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0, 4.0)  # of "tuned": the grid around the lemma's η_g
    client_lrs: tuple[float, ...] = CLIENT_LRS  # of "averaging": the grid of η_l

    @property
    def values(self) -> list[float]:
        return [point.value for point in self.points]

    def shortened(self) -> "Experiment":
        """With fewer replicates, and without its longest horizon where it is the horizon that varies."""
        points = self.points[:-1] if self.varied == "T" else self.points
        return replace(self, points=points, replicates=QUICK)
