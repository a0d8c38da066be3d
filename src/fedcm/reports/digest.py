"""The digest of a run: a small JSON file with everything that a report shows of it.

A report can be made from digests without the runs' folders. The curve holds only the evaluated rounds: a digest of 500
rounds that were evaluated every 10 is smaller than 20 kB.
"""

import math
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    field_validator,
    model_serializer,
    model_validator,
)

from fedcm.config.defaults import fill_in_defaults
from fedcm.config.schema import Section
from fedcm.errors import UserError
from fedcm.reports.metric import (
    Metric,
    find_divergence_round,
    find_headline,
    find_headline_over_clients,
    read_scores,
    read_validation_scores,
)
from fedcm.runs.summary import bring_up_to_date, is_up_to_date
from fedcm.system.error_messages import describe_os_error
from fedcm.system.files import write_text

Count = Annotated[int, Field(ge=0)]

# columns of a curve that only some runs have; they are empty, and not in the file, for all others
SYSTEM_COLUMNS = ("simulated_seconds", "available", "missed", "steps", "steps_least", "steps_most")
SYSTEM_COLUMNS += ("hostile", "backdoor_success", "largest_influence", "epsilon")
_OPTIONAL_COLUMNS = ("consensus_distance", *SYSTEM_COLUMNS, "scores")


class Curve(Section):
    """One column per quantity and one entry per evaluated round, or some of the rounds if none was evaluated."""

    round: list[Count] = Field(default=[])  # number of rounds done
    test_accuracy: list[float | None] = Field(default=[])
    test_loss: list[float | None] = Field(default=[])
    train_loss: list[float | None] = Field(default=[])  # mean since the previous entry
    bytes_down: list[Count] = Field(default=[])  # since the start
    bytes_up: list[Count] = Field(default=[])
    seconds: list[float] = Field(default=[])
    consensus_distance: list[float | None] = Field(default=[])  # without a server only
    simulated_seconds: list[float | None] = Field(default=[])  # since the start
    available: list[float | None] = Field(default=[])  # clients per round, mean since the previous entry
    missed: list[float | None] = Field(default=[])  # reports per round that missed the deadline, mean as above
    steps: list[float | None] = Field(default=[])  # mean local steps of a client, mean as above
    steps_least: list[float | None] = Field(default=[])  # fewest steps of a client since the previous entry
    steps_most: list[float | None] = Field(default=[])  # most steps
    hostile: list[float | None] = Field(default=[])  # hostile clients per round, mean since the previous entry
    backdoor_success: list[float | None] = Field(default=[])  # share of triggered test examples with the target label
    largest_influence: list[float | None] = Field(default=[])  # of a site since the previous entry; federations only
    epsilon: list[float | None] = Field(default=[])  # ε so far, of a private run
    scores: dict[str, list[float | None]] = Field(default={})  # other columns of evaluations, such as test_f1

    @model_validator(mode="after")
    def _check_lengths(self) -> "Curve":
        columns = {name: getattr(self, name) for name in Curve.model_fields if name != "scores"} | self.scores
        lengths = {len(column) for name, column in columns.items() if column or name not in _OPTIONAL_COLUMNS}
        if len(lengths) > 1:
            raise ValueError("the columns of a curve must be equally long")
        return self

    @model_serializer(mode="wrap")
    def _leave_out_empty_columns(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Keep the digests of runs without these columns as small as they were."""
        table = serialize(self)
        return {name: column for name, column in table.items() if column or name not in _OPTIONAL_COLUMNS}

    def get_column(self, name: str) -> list[float | None]:
        """Return a column of evaluations or losses; empty if the curve does not have it."""
        return getattr(self, name) if name in Curve.model_fields else self.scores.get(name, [])

    def flatten(self) -> dict[str, Any]:
        """Return all columns by name, without an inner table."""
        table = self.model_dump(exclude={"scores"})
        return table | self.scores


class ParticipationCounts(Section):
    """How often clients took part in a run."""

    population: Count | None = None  # None if the data define the clients
    times: list[tuple[Count, Count]] = Field(default=[])  # (k, number of clients that took part in k rounds)
    rounds: Count = 0
    mean_cohort: float = 0.0
    empty_rounds: Count = 0


class LabelMix(Section):
    """The label counts of some clients, and statistics of the whole split."""

    sha256: str
    clients: Count
    classes: Annotated[int, Field(ge=1)]
    shown: list[list[Count]]  # clients × classes
    spread: dict[str, float]

    @model_validator(mode="after")
    def _check_lengths(self) -> "LabelMix":
        if any(len(row) != self.classes for row in self.shown):
            raise ValueError("every client of a label mix must have a count for every class")
        return self


class Diagnoses(Section):
    """What `--diagnose` measured: one column per quantity and one entry per diagnosed round."""

    model_config = ConfigDict(populate_by_name=True)

    round: list[Count] = Field(default=[])
    values: dict[str, list[float | None]] = Field(default={}, validation_alias="found", serialization_alias="found")

    @model_validator(mode="after")
    def _check_lengths(self) -> "Diagnoses":
        if any(len(column) != len(self.round) for column in self.values.values()):
            raise ValueError("the columns of the diagnoses must be equally long")
        return self


class ClientResults(Section):
    """The results of single clients in the last evaluation, on test data of their own."""

    round: Count
    metric: str
    higher_is_better: bool
    clients: list[Count]
    values: list[float | None]
    personal: list[float | None] = Field(default=[])  # after each client's own steps; empty if there are none

    @model_validator(mode="after")
    def _check_lengths(self) -> "ClientResults":
        if len(self.values) != len(self.clients) or (self.personal and len(self.personal) != len(self.clients)):
            raise ValueError("there must be one result for every client")
        return self


class SiteResults(Section):
    """What the server of a federation recorded about one site, over all rounds."""

    site: str
    counted: Count  # rounds in which its report counted
    missed: Count  # rounds in which it was asked and its report did not count
    shortened: Count  # rounds in which its report was too long and was shortened
    # of the rounds that compared its report with the others, whether or not it counted; None if there are none
    mean_share: float | None = None
    largest_share: float | None = None
    largest_share_round: Count | None = None  # number of rounds done, as in the curve
    lowest_cosine: float | None = None


class OtherCell(Section):
    """The cell of another sweep or comparison that reused an existing run."""

    labels: dict[str, str] = Field(default={})
    published: Annotated[float, Field(ge=0, le=100)] | None = None


class Digest(Section):
    """One run, as it is stored in a JSON file."""

    digest: Literal[1] = 1  # version of the format
    name: str
    state: Literal["finished", "diverged", "running", "stopped"]
    experiment: dict[str, Any]  # with all defaults
    summary: dict[str, Any]
    versions: dict[str, str] = Field(default={})
    platform: str = ""
    cpu: dict[str, str] = Field(default={})  # model and capability; empty in older digests
    started: str = ""
    participation: ParticipationCounts = ParticipationCounts()
    mix: LabelMix | None = None
    curve: Curve = Curve()
    diagnoses: Diagnoses = Diagnoses()
    client_results: ClientResults | None = None
    # (k, how often a client did k local steps in a round), over all rounds; empty if they are equal in all rounds
    step_counts: list[tuple[Count, Count]] = Field(default=[])
    other_cells: list[OtherCell] = Field(default=[])  # in addition to the experiment's own cell
    sites: list[SiteResults] = Field(default=[])  # by name; empty, and not in the file, without recorded influences

    @field_validator("experiment")
    @classmethod
    def _fill_in_defaults(cls, experiment: dict[str, Any]) -> dict[str, Any]:
        return fill_in_defaults(experiment)

    @model_validator(mode="after")
    def _check_contents(self) -> "Digest":
        """Check what a report relies on; the digest of a real run has all of it."""
        for where, key in (("algorithm", "name"), ("model", "name"), ("data", "source"), ("split", "kind")):
            if not isinstance(self._get_table(where).get(key), str):
                raise ValueError(f"experiment.{where}.{key} must be a string")
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
            raise ValueError("experiment.cell.labels must be strings")
        if not (self.published is None or _is_number(self.published)):
            raise ValueError("experiment.cell.published must be a number")
        for key in ("metrics", "validation"):
            for name, values in self._get_summary_table(key).items():
                if not _is_complete(values):
                    raise ValueError(f"summary.{key}.{name} must have last, mean_last, mean_last_rounds and best")
        for key in ("clients", "personal"):
            numbers = [value for name, value in self._get_summary_table(key).items() if name != "metric"]
            if not all(value is None or _is_number(value) for value in numbers):
                raise ValueError(f"summary.{key} must hold numbers")
        for key in ("accuracy", "test_losses"):
            if isinstance(self.summary.get(key), dict) and not _is_complete(self._current_summary[key]):
                raise ValueError(f"summary.{key} must have last, mean_last, mean_last_rounds and best")
        return self

    @model_serializer(mode="wrap")
    def _leave_out_empty_sites(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Keep the digests of all other runs as they were."""
        return {name: value for name, value in serialize(self).items() if value or name != "sites"}

    def _get_summary_table(self, key: str) -> dict[str, Any]:
        table = self.summary.get(key)
        return table if isinstance(table, dict) else {}

    def _get_table(self, key: str) -> dict[str, Any]:
        table = self.experiment.get(key)
        return table if isinstance(table, dict) else {}

    @property
    def algorithm(self) -> str:
        """The algorithm's name in the experiment."""
        return self._get_table("algorithm")["name"]

    @property
    def seed(self) -> int:
        """The experiment's seed."""
        return self.experiment["seed"]

    @property
    def is_decentralised(self) -> bool:
        """Whether the run's nodes exchange their parameters over a graph, without a server."""
        return bool(self._get_table("topology"))

    @property
    def graph(self) -> str:
        """The graph of a decentralised run with its parameters; the empty string if the run has a server."""
        return " ".join(map(str, self._get_table("topology").values()))

    @property
    def labels(self) -> dict[str, str]:
        """The labels of the run's cell."""
        labels = self._get_table("cell").get("labels")
        return labels if isinstance(labels, dict) else {}

    @property
    def published(self) -> float | None:
        """The accuracy in percent that a paper published for the run's cell, if any."""
        return self._get_table("cell").get("published")

    @property
    def _current_summary(self) -> dict[str, Any]:
        """The summary with the current keys, whatever the digest's age."""
        if is_up_to_date(self.summary):
            return self.summary
        return bring_up_to_date(self.summary, self._list_points("test_accuracy"), self._list_points("test_loss"))

    def _list_points(self, column: str) -> list[tuple[int, float]]:
        pairs = zip(self.curve.round, self.curve.get_column(column), strict=True)
        return [(done - 1, value) for done, value in pairs if value is not None]

    @property
    def accuracy(self) -> dict[str, float] | None:
        """The summary of the accuracy; None if the run was not evaluated or its labels are not classes."""
        accuracy = self._current_summary.get("accuracy")
        return accuracy if isinstance(accuracy, dict) else None

    @property
    def headline(self) -> Metric | None:
        """The headline metric; None if the run was not evaluated, or has only a loss."""
        return find_headline(self._current_summary)

    @property
    def headline_over_clients(self) -> Metric | None:
        """The metric of the results of single clients, as a mean over them; None if there are none."""
        return find_headline_over_clients(self.summary)

    def read_scores(self, metric: Metric) -> dict[str, float] | None:
        """Return the summary of a metric on the test data; None if the run does not have it."""
        return read_scores(self._current_summary, metric)

    def read_validation_scores(self, metric: Metric) -> dict[str, float] | None:
        """Return the summary of a metric on the validation data; None if there are none."""
        return read_validation_scores(self.summary, metric)

    def place_in_cell(self, cell: dict[str, Any]) -> "Digest":
        """Return the same run as if it had been made for this cell only."""
        return self.model_copy(update={"experiment": self.experiment | {"cell": cell}, "other_cells": []})

    def list_placements(self) -> list["Digest"]:
        """Return the run once per cell that it belongs to."""
        return [self, *(self.place_in_cell(cell.model_dump(exclude_none=True)) for cell in self.other_cells)]

    @property
    def test_losses(self) -> dict[str, float] | None:
        """The summary of the test loss; None if the run was not evaluated."""
        losses = self._current_summary.get("test_losses")
        return losses if isinstance(losses, dict) else None

    @property
    def rounds_done(self) -> int:
        """The number of rounds in the run's metrics."""
        done = self.summary.get("rounds")
        return done if isinstance(done, int) else 0

    @property
    def divergence_round(self) -> int | None:
        """The round in which the run diverged; None if it did not."""
        return find_divergence_round(self.state, self.rounds_done)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _is_complete(values: object) -> bool:
    keys = ("last", "mean_last", "mean_last_rounds", "best")
    return isinstance(values, dict) and all(_is_number(values.get(key)) for key in keys)


def write_digest(digest: Digest, path: Path) -> None:
    """Write a digest as JSON."""
    write_text(path, digest.model_dump_json(by_alias=True) + "\n")


def read_digest(path: Path) -> Digest:
    """Read a digest.

    Raises:
        UserError: If the file cannot be read or is not a digest.
    """
    try:
        return Digest.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UserError(f"{str(path)!r} is not a run's digest ({where}{': ' if where else ''}{first['msg']})") from None
    except OSError as error:
        raise UserError(f"the digest cannot be read: {describe_os_error(error)}") from None
