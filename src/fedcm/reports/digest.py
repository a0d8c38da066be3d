"""A run in a small JSON file: all that a report shows of it, so that the page can be made without the run's folder.

The curve keeps the evaluated rounds alone; 500 rounds evaluated every 10 make less than 20 kB.
"""

import math
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from fedcm.config.schema import Section
from fedcm.errors import UserError
from fedcm.reports.outcome import diverged_in
from fedcm.runs.summary import bring_up_to_date, is_up_to_date
from fedcm.system.files import write_text

Count = Annotated[int, Field(ge=0)]


class Curve(Section):
    """A column a quantity, an entry an evaluated round (or some of the rounds, where none was evaluated)."""

    round: list[Count] = Field(default=[])  # rounds done by then
    test_accuracy: list[float | None] = Field(default=[])
    test_loss: list[float | None] = Field(default=[])
    train_loss: list[float | None] = Field(default=[])  # mean since the last entry
    bytes_down: list[Count] = Field(default=[])  # from the start
    bytes_up: list[Count] = Field(default=[])
    seconds: list[float] = Field(default=[])

    @model_validator(mode="after")
    def _rectangular(self) -> "Curve":
        if len({len(getattr(self, name)) for name in Curve.model_fields}) > 1:
            raise ValueError("the columns of a curve must be equally long")
        return self


class Participation(Section):
    population: Count | None = None  # unknown where the data bring their own clients
    times: list[tuple[Count, Count]] = Field(default=[])  # (k, how many clients took part k times)
    rounds: Count = 0
    mean_cohort: float = 0.0
    empty_rounds: Count = 0


class Mix(Section):
    """Some of the clients' label counts, and the whole split in numbers."""

    sha256: str
    clients: Count
    classes: Annotated[int, Field(ge=1)]
    shown: list[list[Count]]  # clients × classes
    spread: dict[str, float]

    @model_validator(mode="after")
    def _rectangular(self) -> "Mix":
        if any(len(row) != self.classes for row in self.shown):
            raise ValueError("every client of a label mix must have a count for every class")
        return self


class Diagnoses(Section):
    """What `--diagnose` measured: a column a quantity, an entry a diagnosed round."""

    round: list[Count] = Field(default=[])
    found: dict[str, list[float | None]] = Field(default={})

    @model_validator(mode="after")
    def _rectangular(self) -> "Diagnoses":
        if any(len(column) != len(self.round) for column in self.found.values()):
            raise ValueError("the columns of the diagnoses must be equally long")
        return self


class OtherCell(Section):
    """Of a sweep or a comparison that used a run which was there already."""

    labels: dict[str, str] = Field(default={})
    published: Annotated[float, Field(ge=0, le=100)] | None = None


class Digest(Section):
    digest: Literal[1] = 1  # the format
    name: str
    state: Literal["finished", "diverged", "running", "stopped"]
    experiment: dict[str, Any]  # with every default filled in
    summary: dict[str, Any]
    versions: dict[str, str] = Field(default={})
    platform: str = ""
    cpu: dict[str, str] = Field(default={})  # model and capability; empty in digests from before it was recorded
    started: str = ""
    participation: Participation = Participation()
    mix: Mix | None = None
    curve: Curve = Curve()
    diagnoses: Diagnoses = Diagnoses()
    other_cells: list[OtherCell] = Field(default=[])  # besides the experiment's own

    @model_validator(mode="after")
    def _whole(self) -> "Digest":
        """What the report counts on; an experiment that ran has all of it."""
        for where, key in (("algorithm", "name"), ("model", "name"), ("data", "source"), ("split", "kind")):
            if not isinstance(self._table(where).get(key), str):
                raise ValueError(f"experiment.{where}.{key} must be a text")
        for key in ("participation", "evaluation", "cell"):
            if not isinstance(self.experiment.get(key, {}), dict):
                raise ValueError(f"experiment.{key} must be a table")
        for key in ("rounds", "bytes_down", "bytes_up", "seconds"):
            if not _is_number(self.summary.get(key, 0)):
                raise ValueError(f"summary.{key} must be a number")
        for key in ("rounds", "seed"):
            if not isinstance(self.experiment.get(key), int):
                raise ValueError(f"experiment.{key} must be a whole number")
        if not all(isinstance(text, str) for text in self.labels.values()):
            raise ValueError("experiment.cell.labels must be texts")
        if not (self.published is None or _is_number(self.published)):
            raise ValueError("experiment.cell.published must be a number")
        for key in ("accuracy", "test_losses"):
            if isinstance(self.summary.get(key), dict) and not _is_described(self._current[key]):
                raise ValueError(f"summary.{key} must have last, mean_last, mean_last_rounds and best")
        return self

    def _table(self, key: str) -> dict[str, Any]:
        table = self.experiment.get(key)
        return table if isinstance(table, dict) else {}

    @property
    def algorithm(self) -> str:
        return self._table("algorithm")["name"]

    @property
    def seed(self) -> int:
        return self.experiment["seed"]

    @property
    def labels(self) -> dict[str, str]:
        labels = self._table("cell").get("labels")
        return labels if isinstance(labels, dict) else {}

    @property
    def published(self) -> float | None:
        return self._table("cell").get("published")

    @property
    def _current(self) -> dict[str, Any]:
        """The summary with today's keys, whenever the digest was made."""
        if is_up_to_date(self.summary):
            return self.summary
        return bring_up_to_date(self.summary, self._points("test_accuracy"), self._points("test_loss"))

    def _points(self, column: str) -> list[tuple[int, float]]:
        pairs = zip(self.curve.round, getattr(self.curve, column), strict=True)
        return [(done - 1, value) for done, value in pairs if value is not None]

    @property
    def accuracy(self) -> dict[str, float] | None:
        """See `fedcm.runs.summary.describe`. None if the run was not evaluated or its labels are not classes."""
        accuracy = self._current.get("accuracy")
        return accuracy if isinstance(accuracy, dict) else None

    def in_cell(self, cell: dict[str, Any]) -> "Digest":
        """The same run, as if it had been made for this cell alone."""
        return self.model_copy(update={"experiment": self.experiment | {"cell": cell}, "other_cells": []})

    @property
    def in_every_cell(self) -> list["Digest"]:
        return [self, *(self.in_cell(cell.model_dump(exclude_none=True)) for cell in self.other_cells)]

    @property
    def test_losses(self) -> dict[str, float] | None:
        losses = self._current.get("test_losses")
        return losses if isinstance(losses, dict) else None

    @property
    def rounds_done(self) -> int:
        done = self.summary.get("rounds")
        return done if isinstance(done, int) else 0

    @property
    def diverged_in(self) -> int | None:
        return diverged_in(self.state, self.rounds_done)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _is_described(found: object) -> bool:
    keys = ("last", "mean_last", "mean_last_rounds", "best")
    return isinstance(found, dict) and all(_is_number(found.get(key)) for key in keys)


def write_digest(digest: Digest, path: Path) -> None:
    write_text(path, digest.model_dump_json() + "\n")


def read_digest(path: Path) -> Digest:
    try:
        return Digest.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UserError(f"{str(path)!r} is not a run's digest ({where}{': ' if where else ''}{first['msg']})") from None
    except OSError as error:
        raise UserError(f"{str(path)!r} cannot be read: {error.strerror}") from None
