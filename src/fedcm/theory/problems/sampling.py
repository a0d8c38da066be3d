"""Cohorts and gradient noise of every round, for all replicates, as a function of (seed, stream, round).

Cohorts are uniform without replacement, as in the theorem. The noise is Gaussian and isotropic, with E‖noise‖² = σ_l²
exactly. All algorithms and step sizes of one simulation see the same samples.
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

_BLOCK = 16  # rounds per generator: creating one costs more than sampling a small round


class RoundSample(NamedTuple):
    """The random part of one round."""

    cohort: Tensor  # (R, S), int64
    noise: Tensor | None  # (K, R, S, d); None if σ_l = 0


@final
@dataclass(frozen=True)
class RoundSampler:
    """Samples cohorts and noise of R replicates.

    Raises:
        UserError: If the cohort does not fit the problem, or steps or replicates are below 1.
    """

    problem: KnownProblem
    cohort_size: int  # S
    steps: int  # K
    replicates: int  # R
    seed: int = 0
    stream: int = 0  # streams of the same seed are independent

    def __post_init__(self) -> None:
        if not 1 <= self.cohort_size <= self.problem.clients:
            raise UserError(f"the cohort must have 1 to {self.problem.clients} clients, got {self.cohort_size}")
        if self.steps < 1 or self.replicates < 1:
            raise UserError(f"steps and replicates must be at least 1, got {self.steps} and {self.replicates}")

    def sample_rounds(self, rounds: int) -> Iterator[RoundSample]:
        """Yield the samples of rounds 0 to `rounds` − 1.

        Whole blocks are sampled, so a round's sample does not depend on how many rounds are requested.
        """
        for first in range(0, rounds, _BLOCK):
            cohorts = self._sample_cohorts(make_generator(self.seed, Purpose.COHORT, first, self.stream))
            noise = self._sample_noise(make_generator(self.seed, Purpose.GRADIENT_NOISE, first, self.stream))
            for k in range(min(_BLOCK, rounds - first)):
                yield RoundSample(cohorts[k], None if noise is None else noise[k])

    def _sample_cohorts(self, generator: np.random.Generator) -> Tensor:
        population, shape = self.problem.clients, (_BLOCK, self.replicates)
        if self.cohort_size == population:
            return torch.arange(population).expand(*shape, -1)
        return torch.from_numpy(sample_without_replacement(generator, population, self.cohort_size, shape))

    def _sample_noise(self, generator: np.random.Generator) -> Tensor | None:
        level, d = self.problem.constants.noise, self.problem.dimension
        if level == 0:
            return None
        noise = generator.standard_normal((_BLOCK, self.steps, self.replicates, self.cohort_size, d))
        noise *= level / math.sqrt(d)
        return torch.from_numpy(noise)


def sample_without_replacement(
    generator: np.random.Generator, population: int, size: int, shape: tuple[int, ...]
) -> np.ndarray:
    """Sample subsets of range(population), all equally likely.

    This is Floyd's algorithm: its cost does not grow with the population.

    Returns:
        An array of shape (*shape, size).
    """
    chosen = np.empty((*shape, size), np.int64)
    for k, last in enumerate(range(population - size, population)):
        candidate = generator.integers(0, last + 1, shape)
        taken = (chosen[..., :k] == candidate[..., None]).any(-1)
        chosen[..., k] = np.where(taken, last, candidate)
    return chosen
