"""What every robust mean has in common."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from torch import Tensor

from fedcm.core.aggregation.robust.rows import ReportRows


class Combined(NamedTuple):
    """The result of a rule."""

    fields: list[Tensor]  # one vector for each field of a report, float64
    clipped: int | None = None  # rows that were shortened
    kept: list[int] | None = None  # rows that were selected


class RobustRule(ABC):
    """A robust mean: a frozen dataclass whose fields are its options, one of which is `bucketing`."""

    bucketing: int
    allows_weights: ClassVar[bool] = False  # whether clients may have unequal weights
    starts_at_guess: ClassVar[bool] = False  # whether `combine` uses the server's guess of a report

    @property
    def needs_table(self) -> bool:
        """Whether all reports of a round must be in memory at once."""
        return True

    @property
    def least_rows(self) -> int:
        """The fewest rows for which the rule is defined: reports, or buckets of them."""
        return 1

    @property
    def least_reports(self) -> int:
        """The fewest reports of a round for which the rule is defined."""
        return (self.least_rows - 1) * self.bucketing + 1

    @abstractmethod
    def combine(self, rows: ReportRows, weights: np.ndarray, guess: Sequence[Tensor] | None) -> Combined:
        """Return the robust mean of some rows.

        Args:
            rows: The reports of a round, or means of buckets of them.
            weights: The weight of each row; all equal unless the rule allows others.
            guess: The server's guess of a report, one float64 vector for each field, if there is one.
        """


def check_count(name: str, value: int, least: int) -> None:
    """Raise ValueError if an option is below its least value."""
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")


def check_radius(fixed_name: str, fixed: float | None, ratio: float | None) -> None:
    """Raise ValueError if a fixed radius and one relative to the median are both given, or one is not above 0."""
    if fixed is not None and ratio is not None:
        raise ValueError(f"{fixed_name} and ratio exclude each other; give one of them")
    for name, value in ((fixed_name, fixed), ("ratio", ratio)):
        if value is not None and not value > 0:
            raise ValueError(f"{name} must be above 0, got {value}")


def choose_radius(fixed: float | None, ratio: float | None, distances: np.ndarray) -> float:
    """Return the fixed radius, or `ratio` (by default 1) times the median of the distances."""
    return fixed if fixed is not None else (1.0 if ratio is None else ratio) * float(np.median(distances))


def compute_factors(radius: float, distances: np.ndarray) -> np.ndarray:
    """Return min(1, radius / distance) for each row."""
    return np.divide(radius, distances, out=np.ones_like(distances), where=distances > radius)


def count_table_bytes(template: Sequence[Any], reports: int) -> int:
    """Return the memory of a table of reports, and of the largest temporary vectors of a rule."""
    return sum(field.numel() * (reports * field.element_size() + 2 * 8) for field in template)


def format_table_memory(size: int) -> str:
    """Return a size in megabytes, rounded up.

    >>> format_table_memory(1_500_001)
    '2 MB'
    """
    return f"{math.ceil(size / 1e6):,} MB"
