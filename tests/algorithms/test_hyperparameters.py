"""The range of every hyperparameter, up to its limits; values out of range raise one sentence."""

import dataclasses
import math
from typing import Any

import pytest

from fedcm.algorithms import ALGORITHMS

NAN, INF = math.nan, math.inf
ROWS: dict[tuple[str, str], tuple[list[Any], list[Any], str]] = {  # accepted, rejected, message
    ("fedcm", "alpha"): ([1e-9, 0.5, 1.0], [0.0, -0.1, 1.0000001, 2.0, NAN], "alpha must be above 0 and at most 1"),
    ("fedcm-anytime", "alpha"): ([1e-9, 1.0], [0.0, -0.1, 1.0000001, NAN], "alpha must be above 0 and at most 1"),
    ("fedcm-anytime", "average"): ([0.0, 0.5, 1e30], [-1e-9, INF, NAN], "and average at least 0 and finite"),
    ("fedadam", "beta1"): ([0.0, 0.9999999], [-1e-9, 1.0, 1.5, NAN], "beta1 and beta2 must be at least 0 and below 1"),
    ("fedadam", "beta2"): ([0.0, 0.9999999], [-1e-9, 1.0, 1.5, NAN], "beta1 and beta2 must be at least 0 and below 1"),
    ("fedadam", "tau"): ([1e-12, 1.0, 50.0], [0.0, -1.0, NAN], "and tau above 0"),
    ("scaffold", "option"): (["I", "II"], ["III", "i", "", None], r'option must be "I" or "II"'),
    ("feddyn", "alpha"): ([1e-12, 1.0, 50.0], [0.0, -1.0, NAN], "alpha must be above 0"),
    ("fedprox", "mu"): ([0.0, 1e-9, 50.0], [-1e-9, NAN], "mu must be at least 0"),
    ("fednova", "momentum"): ([0.0, 0.9999999], [-1e-9, 1.0, NAN], "momentum must be at least 0 and below 1"),
    ("fedexp", "epsilon"): ([1e-12, 1.0], [0.0, -1e-9, NAN], "epsilon must be above 0"),
    ("fedswa", "rho"): ([0.0, 0.5, 1.0], [-1e-9, 1.0000001, NAN], "rho must be at least 0 and at most 1"),
    ("fedswa", "alpha"): ([1e-9, 3.0], [0.0, -1.0, NAN], "and alpha above 0"),
    ("fedavgm", "beta"): ([0.0, 0.9999999], [-1e-9, 1.0, NAN], "beta must be at least 0 and below 1"),
    ("slowmo", "beta"): ([0.0, 0.9999999], [-1e-9, 1.0, NAN], "beta must be at least 0 and below 1"),
    ("fedacg", "decay"): ([0.0, 0.9999999], [-1e-9, 1.0, NAN], "decay must be at least 0 and below 1"),
    ("fedacg", "beta"): ([0.0, 5.0], [-1e-9, NAN], "and beta at least 0"),
    ("mimelite", "beta"): ([0.0, 0.9999999], [-1e-9, 1.0, NAN], "beta must be at least 0 and below 1"),
    ("mime", "beta"): ([0.0, 0.9999999], [-1e-9, 1.0, NAN], "beta must be at least 0 and below 1"),
    ("ghbm", "beta"): ([0.0, 0.9999999], [-1e-9, 1.0, NAN], "beta must be at least 0 and below 1"),
    ("ghbm", "tau"): ([1, 50], [0, -1, 1.5], "and tau a whole number from 1"),
    ("mfl", "gamma"): ([0.0, 0.9999999], [-1e-9, 1.0, NAN], "gamma must be at least 0 and below 1"),
    ("fedac", "alpha"): ([1.0, 50.0], [0.9999999, -1.0, NAN], "alpha, beta and gamma must be at least 1"),
    ("fedac", "beta"): ([1.0, 50.0], [0.9999999, -1.0, NAN], "alpha, beta and gamma must be at least 1"),
    ("fedac", "gamma"): ([1.0, 50.0], [0.9999999, -1.0, NAN], "alpha, beta and gamma must be at least 1"),
    ("fedmoswa", "rho"): ([0.0, 0.5, 1.0], [-1e-9, 1.0000001, NAN], "rho must be at least 0 and at most 1"),
    ("fedmoswa", "alpha"): ([1e-9, 3.0], [0.0, -1.0, NAN], "alpha above 0"),
    ("fedmoswa", "gamma"): ([1e-9, 1.0], [0.0, 1.0000001, NAN], "gamma above 0 and at most 1"),
    ("feddane", "mu"): ([0.0, 1e-9, 50.0], [-1e-9, NAN], "mu must be at least 0"),
    ("fedpd", "sigma"): ([1e-9, 50.0], [0.0, -1.0, NAN], "sigma must be above 0"),
    ("fedsplit", "sigma"): ([1e-9, 50.0], [0.0, -1.0, NAN], "sigma must be above 0"),
    ("fedsam", "rho"): ([0.0, 5.0], [-1e-9, NAN], "rho must be at least 0"),
    ("mofedsam", "alpha"): ([1e-9, 1.0], [0.0, 1.0000001, NAN], "alpha must be above 0 and at most 1"),
    ("mofedsam", "rho"): ([0.0, 5.0], [-1e-9, NAN], "and rho at least 0"),
    ("fedlesam", "rho"): ([0.0, 5.0], [-1e-9, NAN], "rho must be at least 0"),
    ("fedspeed", "strength"): ([1e-9, 5.0], [0.0, -1.0, NAN], "strength must be above 0"),
    ("fedspeed", "rho"): ([0.0, 5.0], [-1e-9, NAN], "and rho at least 0"),
    ("fedsmoo", "strength"): ([1e-9, 5.0], [0.0, -1.0, NAN], "strength must be above 0"),
    ("fedsmoo", "rho"): ([0.0, 5.0], [-1e-9, NAN], "and rho at least 0"),
    ("fedyogi", "beta1"): ([0.0, 0.9999999], [-1e-9, 1.0, NAN], "beta1 and beta2 must be at least 0 and below 1"),
    ("fedyogi", "beta2"): ([0.0, 0.9999999], [-1e-9, 1.0, NAN], "beta1 and beta2 must be at least 0 and below 1"),
    ("fedyogi", "tau"): ([1e-12, 50.0], [0.0, -1.0, NAN], "and tau above 0"),
    ("fedadagrad", "beta1"): ([0.0, 0.9999999], [-1e-9, 1.0, NAN], "beta1 must be at least 0 and below 1"),
    ("fedadagrad", "tau"): ([1e-12, 50.0], [0.0, -1.0, NAN], "and tau above 0"),
    ("adaalter", "epsilon"): ([1e-12, 50.0], [0.0, -1.0, NAN], "epsilon must be above 0"),
    ("fedlada", "alpha"): ([1e-9, 1.0], [0.0, 1.0000001, NAN], "alpha must be above 0 and at most 1"),
    ("fedlada", "beta1"): ([0.0, 0.9999999], [-1e-9, 1.0, NAN], "beta1 at least 0 and below 1"),
    ("fedlada", "beta2"): ([0.0, 1.0], [-1e-9, 1.0000001, NAN], "beta2 at least 0 and at most 1"),
    ("fedlada", "epsilon"): ([1e-12, 50.0], [0.0, -1.0, NAN], "and epsilon above 0"),
    ("fedmuon", "gamma"): ([0.0, 0.9999999], [-1e-9, 1.0, NAN], "gamma and beta must be at least 0 and below 1"),
    ("fedmuon", "beta"): ([0.0, 0.9999999], [-1e-9, 1.0, NAN], "gamma and beta must be at least 0 and below 1"),
    ("fedmuon", "others"): (["adam", "sgd"], ["SGD", "", None], 'and others "adam" or "sgd"'),
    ("d-sgd", "beta"): ([0.0, 0.9999999], [-1e-9, 1.0, NAN], "beta must be at least 0 and below 1"),
    ("qg-dsgdm", "beta"): ([0.0, 0.9999999], [-1e-9, 1.0, NAN], "beta and mu must be at least 0 and below 1"),
    ("qg-dsgdm", "mu"): ([0.0, 0.9999999], [-1e-9, 1.0, NAN], "beta and mu must be at least 0 and below 1"),
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
