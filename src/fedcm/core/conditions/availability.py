"""When clients are available, as a pure function of (seed, round). The cost of a round grows with the population."""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Protocol, final, runtime_checkable

import numpy as np

from fedcm.core.participation import PARTICIPATION, Participation
from fedcm.errors import UserError
from fedcm.rng import Purpose, make_generator
from fedcm.system.field_checks import convert_counts, convert_numbers, convert_paths
from fedcm.system.storage.number_files import NumberTable, read_number_file, to_whole_number


@runtime_checkable
class Availability(Protocol):
    """Says which clients can take part in a round."""

    def find_available(self, population: int, seed: int, round: int) -> np.ndarray:
        """Return a boolean mask of the clients, (population,)."""
        ...


@final
@dataclass(frozen=True)
class DayNight:
    """Each client is available for a part of a day, which begins at a time of its own.

    Client i is available in round t if t/period + φ_i, without its whole part, is below `share`. Its phase φ_i is drawn
    once: from [0, 1), or with zones from 0, 1/zones, 2/zones, … .
    """

    period: int  # rounds of a day
    share: float  # part of a day for which a client is available
    zones: int | None = None  # number of time zones; by default every client has a phase of its own

    def __post_init__(self) -> None:
        convert_counts(self, period=1)
        convert_counts(self, zones=1, optional=True)
        convert_numbers(self, "share")
        if not 0 < self.share <= 1:
            raise ValueError(f"share must be above 0 and at most 1, got {self.share}")

    def find_available(self, population: int, seed: int, round: int) -> np.ndarray:
        """Return a boolean mask of the clients."""
        phases = _draw_phases(population, seed, self.zones)
        return (round % self.period / self.period + phases) % 1.0 < self.share


@lru_cache(maxsize=4)
def _draw_phases(population: int, seed: int, zones: int | None) -> np.ndarray:
    """Draw the phases of all clients from one stream: the number at position i is that of client i."""
    phases = make_generator(seed, Purpose.AVAILABILITY).random(population)
    return phases if zones is None else np.floor(phases * zones) / zones


@final
@dataclass(frozen=True)
class Trace:
    """Recorded times: a CSV file with the columns client, start and stop, in rounds.

    A row says that a client is available in the rounds from `start` to `stop` − 1. A client may have several rows; one
    without any is never available.
    """

    file: str
    period: int | None = None  # rounds after which the trace begins again; by default it does not

    def __post_init__(self) -> None:
        convert_paths(self, "file")
        convert_counts(self, period=1, optional=True)

    @cached_property
    def table(self) -> NumberTable:
        """The file, read once.

        Raises:
            UserError: If the file cannot be read or has other columns.
        """
        return read_number_file(self.file, "availability trace", ("client", "start", "stop"))

    @cached_property
    def intervals(self) -> np.ndarray:
        """The rows as whole numbers, (rows, 3).

        Raises:
            UserError: If an interval is empty, or ends after the period.
        """
        rows = [
            [
                to_whole_number(self.table, name, value or 0.0)
                for name, value in zip(self.table.columns, row, strict=True)
            ]
            for row in self.table.rows
        ]
        for client, start, stop in rows:
            if not start < stop or (self.period is not None and stop > self.period):
                within = "" if self.period is None else f" and at most {self.period}, the period"
                raise UserError(f"stop in {self.file!r} must be above start{within}, got {client},{start},{stop}")
        return np.array(rows, dtype=np.int64).reshape(-1, 3)

    def find_available(self, population: int, seed: int, round: int) -> np.ndarray:
        """Return a boolean mask of the clients.

        Raises:
            UserError: If the file is wrong, or names a client that does not exist.
        """
        clients, start, stop = self.intervals.T
        if len(clients) and clients.max() >= population:
            raise UserError(
                f"clients in {self.file!r} must be numbers from 0 to {population - 1}, because there are {population} "
                f"clients, got {clients.max()}"
            )
        time = round if self.period is None else round % self.period
        mask = np.zeros(population, dtype=bool)
        mask[clients[(start <= time) & (time < stop)]] = True
        return mask


AVAILABILITY: dict[str, type[Availability]] = {"trace": Trace, "day-night": DayNight}


def list_available(availability: Availability, population: int, seed: int, round: int) -> np.ndarray:
    """Return the sorted indices of the available clients.

    Raises:
        UserError: If the availability is not a boolean mask over the clients.
    """
    mask = availability.find_available(population, seed, round)
    if not (isinstance(mask, np.ndarray) and mask.dtype == bool and mask.shape == (population,)):
        raise UserError(
            f"the availability {type(availability).__name__} must return a boolean array of shape ({population},), got "
            f"{str(mask)[:80]}"
        )
    return np.flatnonzero(mask)


def draw_available_cohort(
    participation: Participation, available: np.ndarray, population: int, seed: int, round: int
) -> np.ndarray:
    """Draw the cohort of a round among the available clients.

    The bundled kinds draw among them as they would among a whole population: with everyone available they draw the
    same cohort. From the cohort of a user's own participation, absent clients are left out.
    """
    if type(participation) not in PARTICIPATION.values():
        return np.intersect1d(participation.cohort(population, seed, round), available)
    if not len(available):
        return available
    return available[participation.cohort(len(available), seed, round)]
