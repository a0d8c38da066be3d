"""Stragglers: how fast clients are in simulated time, and how much of their work fits into a round.

A client that takes K local steps needs K·s seconds, with

    s = seconds_per_step · exp(spread·z_client) · exp(jitter·z_client,round),   z standard normal

so the median client needs `seconds_per_step`. The speeds are pure functions of (seed, round, client): which clients
miss the deadline is known before any of them has trained.
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal, final

from fedcm.errors import UserError
from fedcm.rng import Purpose, make_generator
from fedcm.system.field_checks import convert_numbers, convert_paths
from fedcm.system.storage.number_files import NumberTable, read_number_file, to_whole_number

_MAX_SIGMA = 20.0  # e^(±5·20) is still a finite number of seconds


@final
@dataclass(frozen=True)
class Stragglers:
    """Clients differ in speed, and a round ends at a deadline in simulated time.

    >>> stragglers = Stragglers(deadline=10.0, seconds_per_step=3.0, policy="partial")
    >>> stragglers.limit_steps(5, seed=0, round=0, client=0)
    3
    """

    deadline: float  # seconds of simulated time per round
    seconds_per_step: float = 1.0  # of a local step of the median client
    spread: float = 0.0  # σ of the log-normal factor of each client
    jitter: float = 0.0  # σ of a further log-normal factor of each client and round
    file: str | None = None  # a CSV file with the columns client and seconds_per_step, instead of spread
    policy: Literal["drop", "partial"] = "drop"  # "partial": a slow client does the steps that fit

    def __post_init__(self) -> None:
        convert_numbers(self, "deadline", "seconds_per_step", "spread", "jitter")
        convert_paths(self, "file", optional=True)
        for name in ("deadline", "seconds_per_step"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, got {getattr(self, name)}")
        for name in ("spread", "jitter"):
            if not 0 <= getattr(self, name) <= _MAX_SIGMA:
                raise ValueError(f"{name} must be from 0 to {_MAX_SIGMA:g}, got {getattr(self, name)}")
        if self.file is not None and self.spread:
            raise ValueError("file and spread exclude each other; give one of them")
        if self.policy not in ("drop", "partial"):
            raise ValueError(f"policy must be 'drop' or 'partial', got {self.policy!r}")

    @cached_property
    def table(self) -> NumberTable:
        """The file of speeds, read once.

        Raises:
            UserError: If the file cannot be read or has other columns.
        """
        return read_number_file(self.file or "", "table of speeds", ("client", "seconds_per_step"))

    @cached_property
    def listed_seconds(self) -> dict[int, float]:
        """The seconds per step of the clients in the file.

        Raises:
            UserError: If a row is wrong or there twice.
        """
        found: dict[int, float] = {}
        for number, seconds in self.table.rows:
            assert number is not None
            assert seconds is not None
            client = to_whole_number(self.table, "client", number)
            if client in found:
                raise UserError(f"a client must have one row in {self.file!r}, but client {client} has two")
            if seconds <= 0:
                raise UserError(f"seconds_per_step in {self.file!r} must be above 0, got {seconds:g}")
            found[client] = seconds
        return found

    def check(self, population: int) -> None:
        """Read the file of speeds, if there is one, and check that its clients exist.

        Raises:
            UserError: If the file is wrong.
        """
        if self.file is not None and (stranger := max(self.listed_seconds, default=0)) >= population:
            raise UserError(
                f"clients in {self.file!r} must be numbers from 0 to {population - 1}, because there are {population} "
                f"clients, got {stranger}"
            )

    def draw_step_seconds(self, seed: int, round: int, client: int) -> float:
        """Return the simulated seconds that a client needs for one local step in a round."""
        seconds = self.seconds_per_step
        if self.file is not None:
            seconds = self.listed_seconds.get(client, seconds)
        elif self.spread:
            seconds *= math.exp(self.spread * _draw_normal(seed, 0, client))
        if self.jitter:
            seconds *= math.exp(self.jitter * _draw_normal(seed, round + 1, client))
        return seconds

    def fit_steps(self, steps: int, seed: int, round: int, client: int) -> int:
        """Return how many of a client's steps fit into a round: from 0 to `steps`, and never beyond the deadline."""
        seconds = self.draw_step_seconds(seed, round, client)
        fit = min(steps, int(min(self.deadline / seconds, steps)) + 1)  # one more, because the quotient is rounded
        while fit * seconds > self.deadline:
            fit -= 1
        return fit

    def limit_steps(self, steps: int, seed: int, round: int, client: int) -> int:
        """Return how many steps a client that reports has done: with the policy "drop" all of them."""
        return steps if self.policy == "drop" else max(1, self.fit_steps(steps, seed, round, client))

    def is_in_time(self, steps: int, seed: int, round: int, client: int) -> bool:
        """Return whether a client that wants to do this many steps reports before the deadline."""
        return self.fit_steps(steps, seed, round, client) >= (steps if self.policy == "drop" else 1)


@lru_cache(maxsize=100_000)
def _draw_normal(seed: int, stream: int, client: int) -> float:
    """Draw the standard normal number of a client: stream 0 is for all rounds, stream t + 1 for round t."""
    return float(make_generator(seed, Purpose.SPEED, stream, client).standard_normal())
