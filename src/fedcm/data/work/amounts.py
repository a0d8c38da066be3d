"""Unequal work: how many steps or epochs a client does, as a pure function of (seed, round, client)."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import Literal, Protocol, final, runtime_checkable

from fedcm.errors import UserError
from fedcm.rng import Purpose, make_generator
from fedcm.system.error_messages import describe_error
from fedcm.system.field_checks import GREATEST_COUNT, convert_counts, convert_paths
from fedcm.system.storage.number_files import NumberTable, read_number_file, to_whole_number

MAX_AMOUNT = GREATEST_COUNT


@runtime_checkable
class WorkAmount(Protocol):
    """A number of steps or epochs for every client and round."""

    def count_most(self) -> int:
        """Return the largest number that may occur."""
        ...

    def draw_amount(self, seed: int, round: int, client: int) -> int:
        """Return the number of a client in a round, at least 1."""
        ...


@final
@dataclass(frozen=True)
class UniformWork:
    """A whole number from `low` to `high`, each equally likely, drawn for each client and round.

    >>> work = UniformWork(1, 10)
    >>> {work.draw_amount(seed=0, round=round, client=3) for round in range(100)} == set(range(1, 11))
    True
    """

    low: int
    high: int
    per: Literal["round", "client"] = "round"  # "client": drawn once per client, for all rounds

    def __post_init__(self) -> None:
        convert_counts(self, low=1, high=1)
        if self.low > self.high:
            raise ValueError(f"low must be at most high, got {self.low} and {self.high}")
        if self.per not in ("round", "client"):
            raise ValueError(f"per must be 'round' or 'client', got {self.per!r}")

    def count_most(self) -> int:
        """Return the largest number that may occur."""
        return self.high

    def draw_amount(self, seed: int, round: int, client: int) -> int:
        """Return the number of a client in a round."""
        generator = make_generator(seed, Purpose.WORK, round if self.per == "round" else 0, client)
        return int(generator.integers(self.low, self.high, endpoint=True))


@final
@dataclass(frozen=True)
class FileWork:
    """The numbers of a CSV file with the columns `client`, `steps` (or `epochs`) and optionally `round`.

    A row without a round is for all rounds that have no row of their own. A client without a row has the default.
    """

    path: str  # of the CSV file
    default: int | None = None  # for clients and rounds without a row; by default they are an error

    def __post_init__(self) -> None:
        convert_paths(self, "path")
        convert_counts(self, default=1, optional=True)

    @cached_property
    def table(self) -> NumberTable:
        """The file, read once.

        Raises:
            UserError: If the file cannot be read or has other columns.
        """
        try:
            return read_number_file(self.path, "table of steps", ("client", "steps"), ("round",))
        except UserError as error:
            try:
                return read_number_file(self.path, "table of epochs", ("client", "epochs"), ("round",))
            except UserError:
                raise error from None

    @cached_property
    def amounts(self) -> dict[tuple[int, int | None], int]:
        """The numbers by client and round; None stands for all rounds.

        Raises:
            UserError: If a row is wrong or there twice.
        """
        found: dict[tuple[int, int | None], int] = {}
        table = self.table
        for client, amount, round in table.rows:
            assert client is not None
            assert amount is not None
            number = to_whole_number(table, "client", client)
            key = number, None if round is None else to_whole_number(table, "round", round)
            if key in found:
                raise UserError(
                    f"a client must have one row per round in {self.path!r}, but client {key[0]} has two for "
                    f"{'all rounds' if key[1] is None else f'round {key[1]}'}"
                )
            found[key] = to_whole_number(table, table.columns[1], amount, least=1, below=MAX_AMOUNT + 1)
        return found

    def count_most(self) -> int:
        """Return the largest number that may occur."""
        return max([*self.amounts.values(), self.default or 1])

    def draw_amount(self, seed: int, round: int, client: int) -> int:
        """Return the number of a client in a round."""
        amount = self.amounts.get((client, round), self.amounts.get((client, None), self.default))
        if amount is None:
            raise UserError(f"{self.path!r} must have a row for client {client} in round {round}, or set a default")
        return amount

    def check(self, unit: str, population: int, rounds: int) -> None:
        """Read the file, and check that it has a number for every client in every round.

        Args:
            unit: The column that the numbers must be in, "steps" or "epochs".
            population: The number of clients.
            rounds: The number of rounds.

        Raises:
            UserError: If it has not, or has a client that does not exist.
        """
        if self.table.columns[1] != unit:
            raise UserError(
                f"{self.path!r} must have the column {unit!r} for client.{unit}, got {self.table.columns[1]!r}"
            )
        if stranger := next((client for client, _ in self.amounts if client >= population), None):
            raise UserError(
                f"clients in {self.path!r} must be numbers from 0 to {population - 1}, because there are {population} "
                f"clients, got {stranger}"
            )
        if self.default is None:
            for client in range(population):
                if (client, None) in self.amounts:
                    continue
                if missing := next((t for t in range(rounds) if (client, t) not in self.amounts), -1) + 1:
                    raise UserError(
                        f"{self.path!r} must have a row for every client and round, but client {client} has none for "
                        f"round {missing - 1}; add it, or set client.{unit}.default"
                    )


@final
@dataclass(frozen=True)
class WorkFunction:
    """The numbers of a Python function of (round, client)."""

    function: Callable[[int, int], int]

    def count_most(self) -> int:
        """Return the largest number that is allowed, because that of a function is not known."""
        return MAX_AMOUNT

    def draw_amount(self, seed: int, round: int, client: int) -> int:
        """Return the number of a client in a round.

        Raises:
            UserError: If the function failed, or returned something else than a whole number of at least 1.
        """
        name = getattr(self.function, "__qualname__", type(self.function).__name__)
        where = f"for client {client} in round {round}"
        try:
            amount = self.function(round, client)
        except Exception as error:
            raise UserError(f"the work function {name} failed {where}: {describe_error(error)}") from error
        if isinstance(amount, bool) or not isinstance(amount, Integral) or not 1 <= amount <= MAX_AMOUNT:
            raise UserError(
                f"the work function {name} must return a whole number, at least 1, {where}, got {amount!r:.80}"
            )
        return int(amount)


WORK: dict[str, type[WorkAmount]] = {"uniform": UniformWork, "file": FileWork}
