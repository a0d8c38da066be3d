"""Rows of settings that change where a run walks: it agrees with the literal run for both values, and they differ."""

import math
from collections.abc import Callable
from typing import Any

import literal
import torch
from bench import APART, CLASSES, SIZES, Bench, Trained, assert_apart, assert_walked_as_written, made_clients
from schema import put

Row = Callable[[Bench, str], None]  # given the bench and the setting's name


def walks(one: Any, other: Any, **base: Any) -> Row:
    """None is a setting that is not given: the literal run then has the documented default."""

    def row(bench: Bench, setting: str) -> None:
        assert_apart(*[_walked(bench, setting, value, base) for value in (one, other)])

    return row


def walks_with_every_algorithm(one: Any, other: Any, *algorithms: str) -> Row:
    def row(bench: Bench, setting: str) -> None:
        for algorithm in algorithms:
            walks(one, other, algorithm={"name": algorithm})(bench, setting)

    return row


def _walked(bench: Bench, setting: str, value: Any, base: dict[str, Any]) -> Trained:
    table = bench.table(**base)
    put(table, setting, value)
    trained = bench.train(table)
    assert_walked_as_written(trained, bench.clients)
    return trained


def chooses_the_algorithm(bench: Bench, setting: str) -> None:
    """With its documented defaults."""
    table = bench.table(rounds=6, algorithm={})
    put(table, setting, None)
    trained = bench.train(table)
    assert_walked_as_written(trained, bench.clients)
    assert trained.summary["algorithm"] == setting.split(".")[1]


def draws_by_the_seed(bench: Bench, setting: str) -> None:
    """Initial parameters and minibatches are the literal ones of each seed; the cohorts differ too."""
    one, other = (_walked(bench, setting, value, {"rounds": 8}) for value in (None, 2**40 + 1))
    assert one.cohorts != other.cohorts
    assert_apart(one, other)


def reads_the_source(bench: Bench, setting: str) -> None:
    others = made_clients(SIZES[::-1], seed=8)
    table = bench.table()
    put(table, setting, bench.clients_folder("others", others))
    trained = bench.train(table)
    assert_walked_as_written(trained, others)
    assert_apart(trained, bench.train(bench.table()))
    digits = bench.train(
        {key: own for key, own in bench.table().items() if key != "data"} | {"split": _TEN, "rounds": 1}
    )
    assert digits.params.numel() == 10 * (64 + 1)
    assert sum(len(labels) for _, labels in digits.clients) == 1437


_TEN = {"kind": "iid", "clients": 10}


# who takes part


def asks_everyone(bench: Bench, setting: str) -> None:
    table = bench.table()
    put(table, setting, None)
    chosen = bench.train(table)
    assert chosen.cohorts == [list(range(len(SIZES)))] * 4
    assert_walked_as_written(chosen, bench.clients)
    del table["participation"]
    assert bench.train(table).cohorts == chosen.cohorts, "the default"


def asks_so_many(bench: Bench, setting: str) -> None:
    """Without replacement, uniformly: the literal draw, and over many rounds everybody is in as often as the others."""
    for clients in (1, 4, 6):
        table = bench.table(rounds=40, participation={"kind": "fixed", "clients": clients})
        trained = bench.train(table)
        assert trained.cohorts == [drawn(table["seed"], round, clients) for round in range(40)]
        assert {len(set(cohort)) for cohort in trained.cohorts} == {clients}
        times = [sum(number in cohort for cohort in trained.cohorts) for number in range(6)]
        spread = math.sqrt(40 * clients / 6 * (1 - clients / 6))
        assert max(abs(own - 40 * clients / 6) for own in times) <= 4 * spread
    assert_walked_as_written(trained, bench.clients)


def drawn(seed: int, round: int, clients: int) -> list[int]:
    draw = literal.generator(seed, literal.COHORT, round)
    return sorted(draw.choice(6, clients, replace=False, shuffle=False).tolist())


def drawn_by_chance(seed: int, round: int, probability: float) -> list[int]:
    """A binomial number of clients, then so many without replacement."""
    draw = literal.generator(seed, literal.COHORT, round)
    clients = int(draw.binomial(6, probability))
    return sorted(draw.choice(6, clients, replace=False, shuffle=False).tolist())


def asks_with_a_probability(bench: Bench, setting: str) -> None:
    for probability in (0.2, 0.9):
        table = bench.table(rounds=60, participation={"kind": "independent", "probability": probability})
        trained = bench.train(table)
        assert trained.cohorts == [drawn_by_chance(table["seed"], round, probability) for round in range(60)]
        sizes = [len(cohort) for cohort in trained.cohorts]
        error = math.sqrt(6 * probability * (1 - probability) / 60)
        assert abs(sum(sizes) / 60 - 6 * probability) <= 4 * error
        assert len(set(sizes)) > 2, "their number is chance too"
    assert_walked_as_written(bench.train(table | {"rounds": 5}), bench.clients)


# engine: ways to compute the same


def rounds_what_clients_keep(bench: Bench, setting: str) -> None:
    """In half the bytes; and the literal SCAFFOLD walks so when it rounds what a client puts away."""
    base = {"algorithm": {"name": "scaffold"}, "rounds": 8, "client": {"epochs": 2, "batch_size": 4, "lr": 0.05}}
    exact, rounded = (_walked(bench, setting, value, base) for value in (None, "bfloat16"))
    sizes = [(trained.folder / "clients" / "states.bin").stat().st_size for trained in (exact, rounded)]
    assert sizes[0] == 2 * sizes[1]
    apart = float((exact.params - rounded.params).abs().max())
    assert apart > 10 * torch.finfo(torch.float32).eps, "rounding leaves a trace"
    assert apart < APART * CLASSES
