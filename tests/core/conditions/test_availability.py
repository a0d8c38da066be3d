"""Availability: masks, and cohorts among the available clients."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcm.core.conditions.availability import DayNight, Trace, draw_available_cohort, list_available
from fedcm.core.participation import Everyone, FixedSize, Independent, Participation
from fedcm.errors import UserError

KINDS = [Everyone(), FixedSize(3), Independent(0.4)]


@given(st.integers(1, 30), st.floats(0.01, 1), st.integers(0, 99))
def test_client_is_available_for_its_share_of_every_day(period: int, share: float, seed: int) -> None:
    masks = np.array([DayNight(period, share).find_available(20, seed, round) for round in range(2 * period)])
    assert (masks[:period] == masks[period:]).all()
    assert (np.abs(masks[:period].sum(0) - share * period) < 1 + 1e-6).all()


def test_phases_are_those_of_the_stream_of_the_seed() -> None:
    sequence = np.random.SeedSequence(7, spawn_key=(16, 0, 0))
    phases = np.random.Generator(np.random.Philox(sequence)).random(50)
    for round in range(12):
        expected = (round / 6 + phases) % 1 < 0.3
        assert (DayNight(6, 0.3).find_available(50, 7, round) == expected).all()
    assert (DayNight(6, 0.3).find_available(20, 7, 2) == DayNight(6, 0.3).find_available(50, 7, 2)[:20]).all()


def test_clients_of_a_zone_are_available_together() -> None:
    masks = np.array([DayNight(12, 0.5, zones=3).find_available(60, 1, round) for round in range(12)])
    assert len(np.unique(masks, axis=1).T) == 3
    assert DayNight(12, 0.5, zones=1).find_available(60, 1, 0).all()
    assert not DayNight(12, 0.5, zones=1).find_available(60, 1, 6).any()


@pytest.mark.parametrize("participation", KINDS, ids=str)
def test_cohorts_are_the_usual_ones_if_everyone_is_available(participation: Participation) -> None:
    for round in range(20):
        available = list_available(DayNight(5, 1.0), 12, 3, round)
        cohort = draw_available_cohort(participation, available, 12, 3, round)
        assert cohort.tolist() == participation.cohort(12, 3, round).tolist()


@given(st.sets(st.integers(0, 19)), st.integers(0, 50))
def test_cohorts_are_drawn_among_the_available_clients(chosen: set[int], round: int) -> None:
    available = np.array(sorted(chosen), dtype=np.int64)
    everyone, fixed, some = (draw_available_cohort(kind, available, 20, 1, round) for kind in KINDS)
    assert everyone.tolist() == available.tolist()
    assert len(fixed) == min(3, len(available))
    assert set(fixed.tolist()) | set(some.tolist()) <= chosen
    assert (np.diff(fixed) > 0).all()


def test_absent_clients_are_left_out_of_a_users_own_cohort() -> None:
    class Even:
        def cohort(self, population: int, seed: int, round: int) -> np.ndarray:
            return np.arange(0, population, 2)

    assert draw_available_cohort(Even(), np.array([1, 2, 3, 4]), 8, 0, 0).tolist() == [2, 4]


def make_trace(folder: Path, text: str, period: int | None = None) -> Trace:
    (folder / "trace.csv").write_text(text)
    return Trace(str(folder / "trace.csv"), period)


def test_trace_has_half_open_intervals(tmp_path: Path) -> None:
    trace = make_trace(tmp_path, "client,start,stop\n0,0,2\n2,1,3\n2,4,5\n")
    found = [list_available(trace, 4, 0, round).tolist() for round in range(6)]
    assert found == [[0], [0, 2], [2], [], [2], []]
    again = make_trace(tmp_path, "client,start,stop\n0,0,2\n2,1,3\n", period=3)
    assert [list_available(again, 4, 0, round).tolist() for round in range(6)] == [[0], [0, 2], [2]] * 2


def test_trace_without_rows_has_nobody(tmp_path: Path) -> None:
    assert not make_trace(tmp_path, "client,start,stop\n").find_available(3, 0, 0).any()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("client,start,stop\n0,2,2\n", "must be above start and at most 6, the period, got 0,2,2"),
        ("client,start,stop\n0,2,7\n", "must be above start and at most 6"),
        ("client,start,stop\n4,0,1\n", "must be numbers from 0 to 3, because there are 4 clients, got 4"),
        ("client,start,stop\n0,-1,1\n", "start in .* must be a whole number of at least 0"),
        ("client,start\n0,1\n", "the availability trace .* must be a CSV file with the columns client, start, stop"),
    ],
)
def test_wrong_traces_are_rejected(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        make_trace(tmp_path, text, period=6).find_available(4, 0, 0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"period": 0, "share": 0.5}, "period must be a whole number from 1 to 10⁹, got 0"),
        ({"period": 2, "share": 0.0}, "share must be above 0 and at most 1"),
        ({"period": 2, "share": 1.1}, "share must be above 0 and at most 1"),
        ({"period": 2, "share": 0.5, "zones": 0}, "zones must be a whole number from 1 to 10⁹, got 0"),
        ({"period": 2.5, "share": 0.5}, "period must be a whole number from 1 to 10⁹, got 2.5"),
        ({"period": "a", "share": 1}, "period must be a whole number from 1 to 10⁹, got 'a'"),
        ({"period": 2, "share": "x"}, "share must be a finite number, got 'x'"),
    ],
)
def test_impossible_days_are_rejected(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DayNight(**settings)
    with pytest.raises(ValueError, match="period must be a whole number from 1 to 10⁹, got 0"):
        Trace("x.csv", period=0)


def test_other_masks_are_rejected() -> None:
    class Numbers:
        def find_available(self, population: int, seed: int, round: int) -> np.ndarray:
            return np.arange(population)

    with pytest.raises(UserError, match=r"the availability Numbers must return a boolean array of shape \(4,\)"):
        list_available(Numbers(), 4, 0, 0)
