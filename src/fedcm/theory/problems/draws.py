"""Who takes part and what noise they see: (seed, stream, round) -> cohorts and noise of all replicates.

Cohorts are uniform without replacement, as the theorem has it. The noise is Gaussian and isotropic, with E‖noise‖² =
σ_l² exactly. All algorithms and step sizes that are walked together see the same draws.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from fedcm.errors import UserError
from fedcm.rng import Purpose, make_generator
from fedcm.theory.problems.known_problem import KnownProblem

_BLOCK = 16  # rounds a generator: making one costs more than a small round's draws


class RoundDraws(NamedTuple):
    cohort: Tensor  # (R, S), int64
    noise: Tensor | None  # (K, R, S, d); None where σ_l = 0


@final
@dataclass(frozen=True)
class Draws:
    problem: KnownProblem
    cohort: int  # S
    steps: int  # K
    replicates: int  # R
    seed: int = 0
    stream: int = 0  # another one is an independent set of draws of the same seed

    def __post_init__(self) -> None:
        if not 1 <= self.cohort <= self.problem.clients:
            raise UserError(f"a cohort must hold 1 to {self.problem.clients} clients, got {self.cohort}")
        if self.steps < 1 or self.replicates < 1:
            raise UserError(f"steps and replicates must be 1 at least, got {self.steps} and {self.replicates}")

    def rounds(self, rounds: int) -> Iterator[RoundDraws]:
        """So many, from the first. Whole blocks are drawn: a round's draws do not depend on how many are asked for."""
        for first in range(0, rounds, _BLOCK):
            cohorts = self._cohorts(make_generator(self.seed, Purpose.COHORT, first, self.stream))
            noise = self._noise(make_generator(self.seed, Purpose.GRADIENT_NOISE, first, self.stream))
            for k in range(min(_BLOCK, rounds - first)):
                yield RoundDraws(cohorts[k], None if noise is None else noise[k])

    def _cohorts(self, draw: np.random.Generator) -> Tensor:
        population, shape = self.problem.clients, (_BLOCK, self.replicates)
        if self.cohort == population:
            return torch.arange(population).expand(*shape, -1)
        return torch.from_numpy(without_replacement(draw, population, self.cohort, shape))

    def _noise(self, draw: np.random.Generator) -> Tensor | None:
        level, d = self.problem.constants.noise, self.problem.dimension
        if level == 0:
            return None
        drawn = draw.standard_normal((_BLOCK, self.steps, self.replicates, self.cohort, d))
        drawn *= level / math.sqrt(d)
        return torch.from_numpy(drawn)


def without_replacement(draw: np.random.Generator, population: int, size: int, shape: tuple[int, ...]) -> np.ndarray:
    """(*shape, size): subsets, all equally likely, at a cost that does not grow with the population: Floyd's."""
    chosen = np.empty((*shape, size), np.int64)
    for k, last in enumerate(range(population - size, population)):
        candidate = draw.integers(0, last + 1, shape)
        taken = (chosen[..., :k] == candidate[..., None]).any(-1)
        chosen[..., k] = np.where(taken, last, candidate)
    return chosen
