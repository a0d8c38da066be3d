"""The points and experiments of `fedcm theory rates`.

A point is one measurement. An experiment is a set of points that differ in one quantity.
"""

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, final

import torch
from torch import Tensor

from fedcm.theory.problems.known_problem import KnownProblem
from fedcm.theory.theorem.bounds import TheoremSetting

Case = Literal["strongly convex", "general convex", "not convex"]
StepRule = Literal["tuned", "averaging", "proof"]
Claim = float | Literal["grows"] | None  # a proven exponent, the claim that the error grows, or nothing
CLIENT_LRS = (0.00125, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08)  # the default grid of "averaging"
LABELS = {"fedcm": "FedCM", "fedavg": "FedAvg", "scaffold": "SCAFFOLD", "feddyn": "FedDyn"}


class ReplicateCounts(NamedTuple):
    """How many replicates choose the step sizes, and how many others measure the error."""

    tuning: int
    measurement: int


FULL, FEW, QUICK = ReplicateCounts(8, 40), ReplicateCounts(4, 12), ReplicateCounts(4, 8)


@final
@dataclass(frozen=True)
class RatePoint:
    """One value of the varied quantity, and everything else that a measurement needs."""

    value: float
    problem: KnownProblem
    rounds: int = 500  # T
    steps: int = 5  # K
    cohort_size: int = 10  # S
    alpha: float = 0.1  # FedCM's α
    offset: float | None = 1.0  # x_0 − x* in every coordinate; None starts at 0

    @property
    def start(self) -> Tensor:
        """x_0."""
        optimum = self.problem.optimum
        return torch.zeros_like(optimum) if self.offset is None else optimum + self.offset

    @property
    def distance(self) -> float:
        """D = ‖x_0 − x*‖²."""
        return float((self.start - self.problem.optimum).square().sum())

    @property
    def excess(self) -> float:
        """F = f(x_0) − f*."""
        return float(self.problem.value(self.start)) - self.problem.minimum

    def make_setting(self, gradient_bound: float = 0.0, **constants: float) -> TheoremSetting:
        """Return the inputs of the theorem's bounds; `constants` override the problem's own."""
        known = self.problem.constants._replace(**constants)
        return TheoremSetting(known, gradient_bound, self.problem.clients, self.cohort_size, self.steps, self.alpha)


@final
@dataclass(frozen=True)
class RateExperiment:
    """Points that differ in one quantity, and what is proven about the error along them."""

    name: str
    case: Case
    varied: str  # the symbol of the varied quantity
    points: tuple[RatePoint, ...]
    proven: dict[str, Claim]  # by algorithm
    steps: StepRule = "tuned"
    note: str = ""
    replicates: ReplicateCounts = FULL
    times: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0, 4.0)  # for "tuned": multiples of the lemma's η_g to try
    client_lrs: tuple[float, ...] = CLIENT_LRS  # for "averaging": the η_l to try

    @property
    def values(self) -> list[float]:
        """The values of the varied quantity."""
        return [point.value for point in self.points]

    def shorten(self) -> "RateExperiment":
        """Return a quick version: fewer replicates and, if the horizon varies, without the longest one."""
        points = self.points[:-1] if self.varied == "T" else self.points
        return replace(self, points=points, replicates=QUICK)
