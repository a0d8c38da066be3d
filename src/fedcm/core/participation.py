"""Who takes part in a round: a pure function of (seed, round), whose cost grows with the cohort, not the population."""

from dataclasses import dataclass
from typing import Protocol, final

import numpy as np

from fedcm.rng import Purpose, make_generator


class Participation(Protocol):
    def cohort(self, population: int, seed: int, round: int) -> np.ndarray:
        """The clients of this round, sorted."""
        ...


@final
@dataclass(frozen=True)
class Independent:
    """Every client is active with this probability, independently of the others; so a cohort may be empty.

    Drawn as a binomial number of clients, then that many without replacement: the same distribution, at the cost of
    the cohort alone.
    """

    probability: float

    def __post_init__(self) -> None:
        if not 0 < self.probability <= 1:
            raise ValueError(f"probability must be above 0 and at most 1, got {self.probability}")

    def cohort(self, population: int, seed: int, round: int) -> np.ndarray:
        draw = make_generator(seed, Purpose.COHORT, round)
        return _without_replacement(draw, population, int(draw.binomial(population, self.probability)))


@final
@dataclass(frozen=True)
class FixedSize:
    """So many clients, uniformly without replacement."""

    clients: int

    def __post_init__(self) -> None:
        if self.clients < 1:
            raise ValueError(f"clients must be at least 1, got {self.clients}")

    def cohort(self, population: int, seed: int, round: int) -> np.ndarray:
        return _without_replacement(
            make_generator(seed, Purpose.COHORT, round), population, min(self.clients, population)
        )


@final
@dataclass(frozen=True)
class Everyone:
    """All clients in every round."""

    def cohort(self, population: int, seed: int, round: int) -> np.ndarray:
        return np.arange(population)


PARTICIPATION: dict[str, type[Participation]] = {
    "independent": Independent,
    "fixed": FixedSize,
    "everyone": Everyone,
}


def _without_replacement(draw: np.random.Generator, population: int, size: int) -> np.ndarray:
    return np.sort(draw.choice(population, size, replace=False, shuffle=False))
