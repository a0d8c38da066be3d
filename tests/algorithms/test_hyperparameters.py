"""The range of every hyperparameter, up to its limits; values out of range raise one sentence."""

import dataclasses
import math
from typing import Any

import pytest

from fedcm.algorithms import ALGORITHMS

NAN = math.nan
ROWS: dict[tuple[str, str], tuple[list[Any], list[Any], str]] = {  # accepted, rejected, message
    ("fedcm", "alpha"): ([1e-9, 0.5, 1.0], [0.0, -0.1, 1.0000001, 2.0, NAN], "alpha must be above 0 and at most 1"),
    ("fedadam", "beta1"): ([0.0, 0.9999999], [-1e-9, 1.0, 1.5, NAN], "beta1 and beta2 must be at least 0 and below 1"),
    ("fedadam", "beta2"): ([0.0, 0.9999999], [-1e-9, 1.0, 1.5, NAN], "beta1 and beta2 must be at least 0 and below 1"),
    ("fedadam", "tau"): ([1e-12, 1.0, 50.0], [0.0, -1.0, NAN], "and tau above 0"),
    ("scaffold", "option"): (["I", "II"], ["III", "i", "", None], r'option must be "I" or "II"'),
    ("feddyn", "alpha"): ([1e-12, 1.0, 50.0], [0.0, -1.0, NAN], "alpha must be above 0"),
}


@pytest.mark.parametrize(("name", "field"), ROWS)
def test_values_in_range_are_accepted_and_others_raise(name: str, field: str) -> None:
    accepted, rejected, sentence = ROWS[name, field]
    for value in accepted:
        assert getattr(ALGORITHMS[name](**{field: value}), field) == value
    for value in rejected:
        with pytest.raises(ValueError, match=sentence) as error:
            ALGORITHMS[name](**{field: value})
        assert str(value) in str(error.value), "the message must contain the value"


def test_every_hyperparameter_has_a_row() -> None:
    known = {(name, field.name) for name, kind in ALGORITHMS.items() for field in dataclasses.fields(kind)}  # pyright: ignore[reportArgumentType]
    assert set(ROWS) == known


@pytest.mark.parametrize("name", ALGORITHMS)
def test_algorithms_are_frozen(name: str) -> None:
    algorithm = ALGORITHMS[name]()
    assert algorithm == ALGORITHMS[name]()
    for field in dataclasses.fields(algorithm):  # pyright: ignore[reportArgumentType]
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(algorithm, field.name, 0.5)
