"""The metrics of a round as a record and as a line of metrics.jsonl."""

import dataclasses
import json

import pytest

from fedcm.core.metrics import RoundMetrics

PLAIN = RoundMetrics(
    round=4,
    cohort_size=2,
    clients=[1, 3],
    steps=2.5,
    client_lr=0.1,
    loss=0.5,
    norms={"update_norm": 1.0, "momentum_norm": 2.0},
    bytes_down=16,
    bytes_up=8,
)
FULL = dataclasses.replace(
    PLAIN,
    extra={"asked": 3, "missed": ["b"]},
    evaluations={"test": {"loss": 0.25, "accuracy": 0.75}, "validation": {"loss": 0.5, "accuracy": 0.5}},
    seconds=0.125,
    diagnosis={"drift": 0.5, "seconds": 1.0},
)
START = '{"round": 4, "cohort": 2, "clients": [1, 3], "steps": 2.5, "client_lr": 0.1, "loss": 0.5, "update_norm": 1.0, '
START += '"momentum_norm": 2.0, "bytes_down": 16, "bytes_up": 8'


def test_optional_keys_are_absent_from_a_line() -> None:
    assert json.dumps(PLAIN.to_dict()) == START + "}"


def test_a_line_has_its_keys_in_this_order() -> None:
    assert json.dumps(FULL.to_dict()) == START + (
        ', "asked": 3, "missed": ["b"], "test_loss": 0.25, "test_accuracy": 0.75, '
        '"validation_loss": 0.5, "validation_accuracy": 0.5, "seconds": 0.125, '
        '"diagnosis": {"drift": 0.5, "seconds": 1.0}}'
    )


def test_an_empty_round_and_an_evaluation_without_accuracy_write_null() -> None:
    line = dataclasses.replace(PLAIN, loss=None, evaluations={"test": {"loss": 0.25, "accuracy": None}}).to_dict()
    assert (line["loss"], line["test_accuracy"]) == (None, None)


def test_a_large_cohort_has_no_clients_in_its_line() -> None:
    assert list(dataclasses.replace(PLAIN, clients=None).to_dict())[:3] == ["round", "cohort", "steps"]


@pytest.mark.parametrize("metrics", [PLAIN, FULL, dataclasses.replace(PLAIN, clients=None, loss=None)])
def test_a_line_reads_back_as_the_same_record(metrics: RoundMetrics) -> None:
    line = json.loads(json.dumps(metrics.to_dict()))
    assert RoundMetrics.from_dict(line) == metrics
    assert json.dumps(RoundMetrics.from_dict(line).to_dict()) == json.dumps(line)


def test_a_line_without_a_required_key_raises() -> None:
    with pytest.raises(TypeError, match="cohort"):
        RoundMetrics.from_dict({"round": 0})


def test_values_of_an_executor_override_fields_and_the_others_are_extra() -> None:
    metrics = PLAIN.override({"bytes_up": 5, "clients": [3], "asked": 3}).override({"lost": ["c"]})
    assert (metrics.bytes_up, metrics.clients, metrics.bytes_down) == (5, [3], 16)
    assert metrics.extra == {"asked": 3, "lost": ["c"]}
    assert list(metrics.to_dict()) == [*PLAIN.to_dict(), "asked", "lost"]
