"""The metrics of one round: a typed record, and the line of metrics.jsonl that it is written as."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self, final

Metrics = dict[str, Any]  # a `RoundMetrics` as a dict: one line of metrics.jsonl


@final
@dataclass(frozen=True)
class RoundMetrics:
    """What one round did. `to_dict` gives the line of metrics.jsonl, `from_dict` reads it back.

    >>> metrics = RoundMetrics(
    ...     round=0, cohort_size=2, clients=[3, 7], steps=5.0, client_lr=0.1, loss=0.7,
    ...     norms={"update_norm": 0.2}, bytes_down=80, bytes_up=80,
    ... )
    >>> metrics.to_dict()["update_norm"]
    0.2
    >>> RoundMetrics.from_dict(metrics.to_dict()) == metrics
    True
    """

    round: int
    cohort_size: int  # number of clients that reported; `cohort` in a line
    steps: float  # mean local steps of those clients
    client_lr: float
    loss: float | None  # mean local loss; None if nobody reported
    norms: Mapping[str, float]  # update_norm, then one `<field>_norm` for each other field of the server state
    bytes_down: int
    bytes_up: int
    clients: list[int] | None = None  # the clients that reported; None for a large cohort, which the seed determines
    extra: Mapping[str, Any] = field(default_factory=dict)  # what else the executor reports
    test_loss: float | None = None  # None in rounds without an evaluation
    test_accuracy: float | None = None  # None as well if the labels are not classes
    seconds: float | None = None
    server_lr: float | None = None  # None without a schedule of the server rate
    diagnosis: Mapping[str, Any] | None = None  # None in rounds without a diagnosis

    def override(self, values: Mapping[str, Any]) -> Self:
        """Return a copy with these values: in the fields that they name, and all others in `extra`."""
        own = {key: value for key, value in values.items() if key in _OVERRIDABLE}
        others = {key: value for key, value in values.items() if key not in own}
        return dataclasses.replace(self, **own, extra={**self.extra, **others})

    def to_dict(self) -> Metrics:
        """Return the line of metrics.jsonl; its keys are always in the same order, and optional ones may be absent."""
        line: Metrics = {"round": self.round, "cohort": self.cohort_size}
        if self.clients is not None:
            line["clients"] = self.clients
        line |= {"steps": self.steps, "client_lr": self.client_lr}
        if self.server_lr is not None:
            line["server_lr"] = self.server_lr
        line["loss"] = self.loss
        line |= self.norms
        line |= {"bytes_down": self.bytes_down, "bytes_up": self.bytes_up}
        line |= self.extra
        if self.test_loss is not None:
            line |= {"test_loss": self.test_loss, "test_accuracy": self.test_accuracy}
        if self.seconds is not None:
            line["seconds"] = self.seconds
        if self.diagnosis is not None:
            line["diagnosis"] = self.diagnosis
        return line

    @classmethod
    def from_dict(cls, line: Mapping[str, Any]) -> Self:
        """Return the record that `to_dict` wrote as this line.

        Raises:
            TypeError: If a required key is missing.
        """
        own = {_FIELD_OF[key]: value for key, value in line.items() if key in _FIELD_OF}
        norms = {key: value for key, value in line.items() if key.endswith("_norm")}
        extra = {key: value for key, value in line.items() if key not in _FIELD_OF and key not in norms}
        return cls(**own, norms=norms, extra=extra)


_KEYS = {"cohort_size": "cohort"}  # of fields whose key in a line has another name
_FIELD_OF = {
    _KEYS.get(one.name, one.name): one.name
    for one in dataclasses.fields(RoundMetrics)
    if one.name not in ("norms", "extra")  # written as several keys
}
_OVERRIDABLE = {"clients", "steps", "loss", "bytes_down", "bytes_up"}
