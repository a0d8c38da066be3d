"""Factors of a learning rate over time: the kinds of `client.schedule`, `server.schedule` and `client.step_schedule`.

t = 0, 1, … counts the T rounds of a run, or the T = K_i local steps of a client's round. The factor at t multiplies
the learning rate:

    t < warmup   (t + 1) / warmup
    otherwise    the curve of the kind at s = t − warmup of S = T − warmup:
        constant     1
        exponential  decay^s
        step         factor^⌊s / every⌋, or factor^(number of milestones up to s)
        cosine       final + (1 − final)·(1 + cos(π·s/S)) / 2
        polynomial   final + (1 − final)·(1 − s/S)^power
        function     f(s, S)

The last three depend on T. `over` replaces T; from t = T on, the factor stays at its value for t = T − 1. Because
s/S < 1, `final` is approached and not reached, and the factor is positive even if `final` is 0.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any, ClassVar, final

from fedcm.errors import UserError
from fedcm.system.error_messages import describe_error
from fedcm.system.field_checks import convert_counts, convert_numbers, is_count
from fedcm.system.imports import import_object

MAX_FACTOR = 1e6
_MAX_CHECKED = 100_000  # values of a user's function that are checked before a run

FactorFunction = Callable[[int, int], float]


class RateSchedule(ABC):
    """A factor of a learning rate as a function of t and T; see the module's docstring."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
    warmup: int

    @property
    def horizon(self) -> int | None:
        """T, if the kind depends on it and `over` gives it."""
        return None

    @property
    def depends_on_total(self) -> bool:
        """Whether the factors change with the total number of rounds or steps."""
        return False

    def compute_factor(self, t: int, total: int, unit: str = "round") -> float:
        """Return the factor at t.

        Args:
            t: The round or the local step, from 0.
            total: The number of rounds or local steps.
            unit: What t counts, for error messages.

        Raises:
            UserError: If a user's own function fails, or returns a factor that cannot be used.
        """
        total = self.horizon or total
        t = min(t, total - 1) if self.depends_on_total or self.horizon else t
        if t < self.warmup:
            return (t + 1) / self.warmup
        return self._compute_curve(t - self.warmup, total - self.warmup, unit)

    def list_extremes(self, total: int) -> Iterable[int]:
        """Return the t, out of `total`, at which the factor may be smallest or largest."""
        return (0, total - 1)

    @abstractmethod
    def _compute_curve(self, s: int, remaining: int, unit: str) -> float:
        """Return the factor after the warm-up, at s of S = `remaining`."""


class ScheduleOverTotal(RateSchedule):
    """A schedule that depends on T: on all rounds or steps, or on `over`."""

    over: int | None

    @property
    def horizon(self) -> int | None:
        """T, if `over` gives it."""
        return self.over

    @property
    def depends_on_total(self) -> bool:
        """True without `over`."""
        return self.over is None


@final
@dataclass(frozen=True)
class Constant(RateSchedule):
    """The factor is 1 after the warm-up."""

    warmup: int = 0  # linear warm-up, at least 0

    def __post_init__(self) -> None:
        convert_counts(self, warmup=0)

    def _compute_curve(self, s: int, remaining: int, unit: str) -> float:
        return 1.0


@final
@dataclass(frozen=True)
class ExponentialDecay(RateSchedule):
    """The factor is multiplied by `decay` every time."""

    decay: float  # above 0 and at most 1
    warmup: int = 0  # linear warm-up, at least 0

    def __post_init__(self) -> None:
        convert_counts(self, warmup=0)
        convert_numbers(self, "decay")
        if not 0 < self.decay <= 1:
            raise ValueError(f"decay must be above 0 and at most 1, got {self.decay}")

    def _compute_curve(self, s: int, remaining: int, unit: str) -> float:
        return self.decay**s


@final
@dataclass(frozen=True)
class StepDecay(RateSchedule):
    """The factor is multiplied by `factor` after every `every`, or at the given milestones."""

    factor: float = 0.1  # above 0 and at most 1
    every: int | None = None  # at least 1
    milestones: tuple[int, ...] = ()  # increasing, at least 1, counted from the end of the warm-up; instead of every
    warmup: int = 0  # linear warm-up, at least 0

    def __post_init__(self) -> None:
        convert_counts(self, warmup=0)
        convert_counts(self, every=1, optional=True)
        convert_numbers(self, "factor")
        if not 0 < self.factor <= 1:
            raise ValueError(f"factor must be above 0 and at most 1, got {self.factor}")
        given: list[Any] = list(self.milestones) if isinstance(self.milestones, list | tuple) else [None]
        if not all(is_count(one, 1) for one in given) or given != sorted(set(given)):
            raise ValueError(f"milestones must be increasing whole numbers, at least 1, got {self.milestones!r}")
        object.__setattr__(self, "milestones", tuple(map(int, given)))
        if (self.every is None) == (not self.milestones):
            raise ValueError("every or milestones must be given, and not both")

    def _compute_curve(self, s: int, remaining: int, unit: str) -> float:
        passed = s // self.every if self.every is not None else sum(one <= s for one in self.milestones)
        return self.factor**passed


@final
@dataclass(frozen=True)
class Cosine(ScheduleOverTotal):
    """The factor falls from 1 towards `final` along half a cosine."""

    final: float = 0.0  # from 0 to 1
    over: int | None = None  # T, if it is not the number of all rounds or steps; above warmup
    warmup: int = 0  # linear warm-up, at least 0

    def __post_init__(self) -> None:
        convert_counts(self, warmup=0)
        convert_counts(self, over=1, optional=True)
        convert_numbers(self, "final")
        _check_final_and_over(self.final, self.over, self.warmup)

    def _compute_curve(self, s: int, remaining: int, unit: str) -> float:
        return self.final + (1 - self.final) * (1 + math.cos(math.pi * s / remaining)) / 2


@final
@dataclass(frozen=True)
class Polynomial(ScheduleOverTotal):
    """The factor falls from 1 towards `final` along a power of the time that is left; power 1 is a line."""

    power: float = 1.0  # above 0
    final: float = 0.0  # from 0 to 1
    over: int | None = None  # T, if it is not the number of all rounds or steps; above warmup
    warmup: int = 0  # linear warm-up, at least 0

    def __post_init__(self) -> None:
        convert_counts(self, warmup=0)
        convert_counts(self, over=1, optional=True)
        convert_numbers(self, "final", "power")
        _check_final_and_over(self.final, self.over, self.warmup)
        if not 0 < self.power <= 100:
            raise ValueError(f"power must be above 0 and at most 100, got {self.power}")

    def _compute_curve(self, s: int, remaining: int, unit: str) -> float:
        return self.final + (1 - self.final) * (1 - s / remaining) ** self.power


@final
@dataclass(frozen=True)
class FunctionSchedule(ScheduleOverTotal):
    """The factor is returned by your own function, called as `f(s, S)`; without warm-up, `f(round, rounds)`."""

    function: str | FactorFunction  # package.module:function; in Python also the function itself
    over: int | None = None  # T, if it is not the number of all rounds or steps; above warmup
    warmup: int = 0  # linear warm-up, at least 0

    def __post_init__(self) -> None:
        convert_counts(self, warmup=0)
        convert_counts(self, over=1, optional=True)
        _check_final_and_over(0.0, self.over, self.warmup)
        if not callable(self._call):
            raise ValueError(f"function must be a function of (round, rounds), got {self.function!r}")

    @cached_property
    def _call(self) -> Any:
        return import_object(self.function) if isinstance(self.function, str) else self.function

    @property
    def name(self) -> str:
        """The function's name."""
        if isinstance(self.function, str):
            return self.function
        return getattr(self.function, "__qualname__", type(self.function).__name__)

    def list_extremes(self, total: int) -> Iterable[int]:
        """Return all t, up to a limit, because nothing is known about the function."""
        return range(min(total, _MAX_CHECKED))

    def _compute_curve(self, s: int, remaining: int, unit: str) -> float:
        t = s + self.warmup
        try:
            factor = self._call(s, remaining)
        except Exception as error:
            raise UserError(f"the schedule {self.name!r} failed in {unit} {t}: {describe_error(error)}") from error
        if isinstance(factor, bool) or not isinstance(factor, Real) or not 0 < float(factor) <= MAX_FACTOR:
            raise UserError(
                f"the schedule {self.name!r} must return a factor above 0 and at most {MAX_FACTOR:g}, got "
                f"{str(factor)[:80]} in {unit} {t}"
            )
        return float(factor)


SCHEDULES: dict[str, type[RateSchedule]] = {
    "constant": Constant,
    "exponential": ExponentialDecay,
    "step": StepDecay,
    "cosine": Cosine,
    "polynomial": Polynomial,
    "function": FunctionSchedule,
}


def _check_final_and_over(final: float, over: int | None, warmup: int) -> None:
    if not 0 <= final <= 1:
        raise ValueError(f"final must be from 0 to 1, got {final}")
    if over is not None and over <= warmup:
        raise ValueError(f"over must be above warmup, got over = {over} and warmup = {warmup}")
