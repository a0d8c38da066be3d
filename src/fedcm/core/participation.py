"""The cohort of a round: a pure function of (seed, round). Its cost grows with the cohort, not with the population."""

from dataclasses import dataclass
from typing import Protocol, final

import numpy as np

from fedcm.rng import Purpose, make_generator


class Participation(Protocol):
    """Chooses the clients of each round."""

    def cohort(self, population: int, seed: int, round: int) -> np.ndarray:
        """Return the clients of this round, sorted."""
        ...


@final
@dataclass(frozen=True)
class Independent:
    """Each client takes part with this probability, independently of the others. A cohort may be empty.

    The size of the cohort is drawn from a binomial distribution, then its members are drawn without replacement: the
    same distribution, at a cost that grows with the cohort alone.
    """

    probability: float

    def __post_init__(self) -> None:
        if not 0 < self.probability <= 1:
            raise ValueError(f"probability must be above 0 and at most 1, got {self.probability}")

    def cohort(self, population: int, seed: int, round: int) -> np.ndarray:
        """Return the sorted indices of the clients of a round."""
        generator = make_generator(seed, Purpose.COHORT, round)
        return _draw_without_replacement(generator, population, int(generator.binomial(population, self.probability)))


@final
@dataclass(frozen=True)
class FixedSize:
    """A fixed number of clients, drawn uniformly without replacement."""

    clients: int

    def __post_init__(self) -> None:
        if self.clients < 1:
            raise ValueError(f"clients must be at least 1, got {self.clients}")

    def cohort(self, population: int, seed: int, round: int) -> np.ndarray:
        """Return the sorted indices of the clients of a round."""
        return _draw_without_replacement(
            make_generator(seed, Purpose.COHORT, round), population, min(self.clients, population)
        )


@final
@dataclass(frozen=True)
class Everyone:
    """All clients take part in every round."""

    def cohort(self, population: int, seed: int, round: int) -> np.ndarray:
        """Return the sorted indices of the clients of a round."""
        return np.arange(population)


PARTICIPATION: dict[str, type[Participation]] = {
    "independent": Independent,
    "fixed": FixedSize,
    "everyone": Everyone,
}


def _draw_without_replacement(generator: np.random.Generator, population: int, size: int) -> np.ndarray:
    return np.sort(generator.choice(population, size, replace=False, shuffle=False))
