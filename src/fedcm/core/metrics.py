"""The metrics of one round: a typed record, and the line of metrics.jsonl that it is written as."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self, final

# the keys of evaluations in a line begin with these words
EVALUATED = ("test", "validation", "clients", "personal", "backdoor")
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
    # by set, such as "test": the loss and the metrics by name; a set is absent in rounds without an evaluation
    evaluations: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)
    client_scores: Any = field(default=None, compare=False)  # `ClientScores` of an evaluation; not written in a line
    seconds: float | None = None
    server_lr: float | None = None  # None without a schedule of the server rate
    diagnosis: Mapping[str, Any] | None = None  # None in rounds without a diagnosis

    @property
    def test_loss(self) -> float | None:
        """The loss on the test data; None in rounds without an evaluation."""
        return self.evaluations.get("test", {}).get("loss")

    @property
    def test_accuracy(self) -> float | None:
        """The accuracy on the test data; None in rounds without an evaluation, and if the labels are not classes."""
        return self.evaluations.get("test", {}).get("accuracy")

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
        for which, scores in self.evaluations.items():
            line |= {f"{which}_{name}": value for name, value in scores.items()}
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
        evaluations: dict[str, dict[str, float | None]] = {}
        for key, value in line.items():
            which, _, name = key.partition("_")
            if which in EVALUATED and name:
                evaluations.setdefault(which, {})[name] = value
        scores = {f"{which}_{name}" for which, values in evaluations.items() for name in values}
        norms = {key: value for key, value in line.items() if key.endswith("_norm") and key not in scores}
        read = {*_FIELD_OF, *norms, *scores}
        extra = {key: value for key, value in line.items() if key not in read}
        return cls(**own, norms=norms, evaluations=evaluations, extra=extra)


def describe_score(line: Mapping[str, Any]) -> str | None:
    """Describe the first metric of an evaluation, or else the loss, for a progress line; None without an evaluation.

    >>> describe_score({"test_loss": 0.5, "test_accuracy": 0.75}), describe_score({"test_loss": 0.5, "test_f1": 0.25})
    ('accuracy 75.00%', 'f1 0.25')
    >>> describe_score({"test_loss": 0.5, "test_accuracy": None}), describe_score({"validation_loss": 0.5})
    ('test loss 0.5', 'validation loss 0.5')
    >>> describe_score({"clients_accuracy_mean": 0.75, "clients_accuracy_worst": 0.5})
    'mean accuracy over clients 75.00%'
    """
    for which in ("test", "validation"):
        prefix = f"{which}_"
        scores = {key.removeprefix(prefix): value for key, value in line.items() if key.startswith(prefix)}
        word = "" if which == "test" else f"{which} "
        for name, value in scores.items():
            if name != "loss" and value is not None:
                return f"{word}{name} {_format_score(name, value)}"
        if scores.get("loss") is not None:
            return f"{which} loss {scores['loss']:.4g}"
    means = {key.removeprefix("clients_").removesuffix("_mean"): key for key in line if key.startswith("clients_")}
    for name, key in means.items():
        if key.endswith("_mean") and line[key] is not None:
            return f"mean {name} over clients {_format_score(name, line[key])}"
    return None


def _format_score(name: str, value: float) -> str:
    return f"{value:.2%}" if name == "accuracy" else f"{value:.4g}"


_KEYS = {"cohort_size": "cohort"}  # of fields whose key in a line has another name
_FIELD_OF = {
    _KEYS.get(one.name, one.name): one.name
    for one in dataclasses.fields(RoundMetrics)
    if one.name not in ("norms", "evaluations", "client_scores", "extra")  # written as several keys
}
_OVERRIDABLE = {"clients", "steps", "loss", "bytes_down", "bytes_up"}
