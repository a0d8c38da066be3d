"""Every kind of schedule has the factors of torch's scheduler, round by round."""

import math
from typing import Any

import numpy as np
import pytest
from torch_schedules import fall, list_torch_factors

from fedcm.config.choices import describe_schedule, read_schedule
from fedcm.core.schedule import Schedule
from fedcm.core.schedule_kinds import Constant, Cosine, ExponentialDecay, FunctionSchedule, Polynomial, StepDecay
from fedcm.errors import UserError

KINDS: list[dict[str, Any]] = [
    {"kind": "constant"},
    {"kind": "exponential", "decay": 0.83},
    {"kind": "step", "every": 4},
    {"kind": "step", "every": 3, "factor": 0.7},
    {"kind": "step", "milestones": [2, 5, 11], "factor": 0.5},
    {"kind": "cosine"},
    {"kind": "cosine", "final": 0.2},
    {"kind": "polynomial"},
    {"kind": "polynomial", "power": 2.5, "final": 0.1},
    {"kind": "function", "function": "torch_schedules:fall"},
]
WITH_HORIZON = ("cosine", "polynomial", "function")


@pytest.mark.parametrize("warmup", [0, 1, 2, 6])
@pytest.mark.parametrize("table", KINDS, ids=str)
def test_factors_are_those_of_torch(table: dict[str, Any], warmup: int) -> None:
    schedule = read_schedule(table | {"warmup": warmup}, "client.schedule")
    assert schedule is not None
    total = 17
    own = [schedule.compute_factor(t, total) for t in range(total)]
    assert own == pytest.approx(list_torch_factors(table | {"warmup": warmup}, total), rel=1e-9)
    assert all(factor > 0 for factor in own), "even if the final factor is 0"


@pytest.mark.parametrize("table", [table for table in KINDS if table["kind"] in WITH_HORIZON], ids=str)
def test_a_horizon_replaces_the_number_of_rounds_and_the_last_factor_stays(table: dict[str, Any]) -> None:
    schedule = read_schedule(table | {"over": 8, "warmup": 3}, "client.schedule")
    assert schedule is not None
    own = [schedule.compute_factor(t, 20) for t in range(20)]
    assert own == pytest.approx(list_torch_factors(table | {"over": 8, "warmup": 3}, 20), rel=1e-9)
    assert own == [schedule.compute_factor(t, 5) for t in range(20)], "the total does not matter"
    assert set(own[8:]) == {own[7]}
    assert not schedule.depends_on_total


def test_only_kinds_with_a_horizon_depend_on_the_number_of_rounds() -> None:
    for table in KINDS:
        schedule = read_schedule(table, "client.schedule")
        assert schedule is not None
        assert schedule.depends_on_total == (table["kind"] in WITH_HORIZON)
        differs = [schedule.compute_factor(5, 17), schedule.compute_factor(5, 99)]
        assert (differs[0] != differs[1]) == schedule.depends_on_total


def test_the_warm_up_is_a_line_to_1() -> None:
    factors = [Constant(warmup=4).compute_factor(t, 10) for t in range(6)]
    assert factors == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_a_warm_up_longer_than_the_horizon_is_only_a_warm_up() -> None:
    assert [Cosine(warmup=5).compute_factor(t, 3) for t in range(3)] == [0.2, 0.4, 0.6]


@pytest.mark.parametrize("table", KINDS, ids=str)
def test_a_table_is_described_as_it_was_read(table: dict[str, Any]) -> None:
    given = table | {"warmup": 2} | ({"over": 30} if table["kind"] in WITH_HORIZON else {})
    described = describe_schedule(read_schedule(given, "client.schedule"))
    assert described is not None
    assert {key: described[key] for key in given} == given
    assert read_schedule(described, "client.schedule") == read_schedule(given, "client.schedule")


def test_a_python_function_is_described_by_its_name() -> None:
    schedule = read_schedule(fall, "client.schedule")
    assert schedule == FunctionSchedule(fall)
    assert describe_schedule(schedule) == {"kind": "in-memory:fall", "warmup": 0}
    with pytest.raises(UserError, match=r"^client.schedule is a Python function of the program that made"):
        read_schedule({"kind": "in-memory:fall"}, "client.schedule")


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Constant(warmup=-1), "warmup must be a whole number from 0 to 10⁹, got -1"),
        (lambda: Constant(warmup=1.5), "warmup must be a whole number"),  # pyright: ignore[reportArgumentType]
        (lambda: ExponentialDecay(1.1), "decay must be above 0 and at most 1, got 1.1"),
        (lambda: ExponentialDecay(math.nan), "decay must be a finite number, got nan"),
        (lambda: StepDecay(), "every or milestones must be given, and not both"),
        (lambda: StepDecay(every=2, milestones=(3,)), "every or milestones must be given, and not both"),
        (lambda: StepDecay(milestones=(3, 2)), "milestones must be increasing whole numbers"),
        (lambda: StepDecay(factor=0.0, every=2), "factor must be above 0 and at most 1, got 0.0"),
        (lambda: Cosine(final=1.5), "final must be from 0 to 1, got 1.5"),
        (lambda: Cosine(over=4, warmup=4), "over must be above warmup, got over = 4 and warmup = 4"),
        (lambda: Polynomial(power=0.0), "power must be above 0 and at most 100, got 0.0"),
        (lambda: FunctionSchedule("math:pi"), "function must be a function of"),
        (lambda: FunctionSchedule("nowhere:f"), "there is no module 'nowhere'"),
    ],
)
def test_a_wrong_field_gives_one_sentence(make: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make()


def test_numbers_of_numpy_become_pythons_own() -> None:
    schedule = StepDecay(factor=np.float32(0.5), every=np.int64(3), warmup=np.int64(2))  # pyright: ignore[reportArgumentType]
    assert [type(value) for value in (schedule.factor, schedule.every, schedule.warmup)] == [float, int, int]


@pytest.mark.parametrize("factor", [-0.5, 0.0, math.nan, math.inf, 1e7, "fast", True, None], ids=str)
def test_an_unusable_factor_of_a_function_gives_one_sentence_with_the_round(factor: Any) -> None:
    schedule = FunctionSchedule(lambda t, total: factor if t == 3 else 1.0)
    assert schedule.compute_factor(2, 9) == 1.0
    with pytest.raises(UserError, match=r"must return a factor above 0 and at most 1e\+06, got .* in round 3$"):
        schedule.compute_factor(3, 9)


def test_a_function_that_fails_gives_one_sentence_with_the_round() -> None:
    def fail(t: int, total: int) -> float:
        raise LookupError("no such entry")

    with pytest.raises(UserError, match=r"failed in round 7: LookupError: no such entry"):
        FunctionSchedule(fail).compute_factor(7, 9)


def test_a_schedule_multiplies_the_rates_of_a_round() -> None:
    schedule = Schedule(0.2, server_lr=3.0, client=Cosine(), server=Polynomial(), rounds=5)
    for t, factor in enumerate(list_torch_factors({"kind": "cosine"}, 5)):
        assert schedule.client_lr_at(t) == pytest.approx(0.2 * factor, rel=1e-12)
    assert [schedule.server_lr_at(t) for t in range(5)] == pytest.approx([3.0, 2.4, 1.8, 1.2, 0.6])
    assert schedule.client_lr_at(5) == schedule.client_lr_at(4), "after the last round, for a diagnosis"


def test_the_decay_is_the_short_form_of_an_exponential_schedule() -> None:
    short, long = Schedule(0.3, decay=0.9), Schedule(0.3, client=ExponentialDecay(0.9))
    assert [short.client_lr_at(t) for t in range(30)] == [long.client_lr_at(t) for t in range(30)]
    with pytest.raises(ValueError, match="lr_decay must be 1 with a schedule"):
        Schedule(0.3, decay=0.9, client=Cosine())
