"""Simulated speeds: log-normal draws, files, and what fits before a deadline."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcm.data.batches import LocalWork
from fedcm.data.work.stragglers import Stragglers
from fedcm.errors import UserError

TIMES = st.floats(1e-3, 1e4)
SIGMAS = st.floats(0, 3)
INDICES = st.integers(0, 500)


def draw_normal(seed: int, stream: int, client: int) -> float:
    sequence = np.random.SeedSequence(seed, spawn_key=(15, stream, client))
    return float(np.random.Generator(np.random.Philox(sequence)).standard_normal())


@given(TIMES, SIGMAS, SIGMAS, INDICES, INDICES, INDICES)
def test_seconds_are_a_draw_per_client_times_a_draw_per_round(
    usual: float, spread: float, jitter: float, seed: int, round: int, client: int
) -> None:
    slow = Stragglers(1.0, usual, spread, jitter)
    expected = usual * np.exp(spread * draw_normal(seed, 0, client) + jitter * draw_normal(seed, round + 1, client))
    assert slow.draw_step_seconds(seed, round, client) == pytest.approx(expected, rel=1e-12)


@given(TIMES, TIMES, SIGMAS, SIGMAS, st.integers(1, 200), INDICES, INDICES)
def test_partial_work_never_exceeds_the_deadline_and_one_more_step_would(
    deadline: float, usual: float, spread: float, jitter: float, steps: int, round: int, client: int
) -> None:
    slow = Stragglers(deadline, usual, spread, jitter, policy="partial")
    seconds, fit = slow.draw_step_seconds(1, round, client), slow.fit_steps(steps, 1, round, client)
    assert 0 <= fit <= steps
    assert fit * seconds <= deadline
    assert fit == steps or (fit + 1) * seconds > deadline
    assert slow.is_in_time(steps, 1, round, client) == (seconds <= deadline)
    assert slow.limit_steps(steps, 1, round, client) == max(fit, 1)
    assert LocalWork(4, steps=steps, stragglers=slow).count_steps(9, 1, round, client) == max(fit, 1)


@given(TIMES, TIMES, SIGMAS, st.integers(1, 200), INDICES)
def test_client_is_dropped_if_its_work_takes_longer_than_the_deadline(
    deadline: float, usual: float, spread: float, steps: int, client: int
) -> None:
    slow = Stragglers(deadline, usual, spread)
    in_time = steps * slow.draw_step_seconds(1, 0, client) <= deadline
    assert slow.is_in_time(steps, 1, 0, client) == in_time
    assert slow.limit_steps(steps, 1, 0, client) == steps


@given(st.integers(1, 100), st.integers(1, 100))
def test_deadline_that_is_a_multiple_of_a_step_is_met(steps: int, tenths: int) -> None:
    seconds = tenths / 10
    assert Stragglers(steps * seconds, seconds).is_in_time(steps, 0, 0, 0)


def test_median_speed_is_the_given_one() -> None:
    seconds = [Stragglers(1.0, 2.0, spread=0.5).draw_step_seconds(3, 0, client) for client in range(2000)]
    logs = np.log(seconds)
    assert np.mean(logs) == pytest.approx(np.log(2), abs=4 * 0.5 / np.sqrt(2000))
    assert np.std(logs) == pytest.approx(0.5, rel=0.1)


def test_file_has_the_speeds_of_some_clients(tmp_path: Path) -> None:
    (tmp_path / "speeds.csv").write_text("client,seconds_per_step\n2,0.25\n0,4\n")
    slow = Stragglers(1.0, 3.0, file=str(tmp_path / "speeds.csv"))
    assert [slow.draw_step_seconds(0, 5, client) for client in range(4)] == [4.0, 3.0, 0.25, 3.0]
    slow.check(population=3)
    with pytest.raises(UserError, match="must be numbers from 0 to 1, because there are 2 clients, got 2"):
        slow.check(population=2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("client,seconds_per_step\n0,1\n0,2\n", "client 0 has two"),
        ("client,seconds_per_step\n0,0\n", "seconds_per_step in .* must be above 0, got 0"),
        ("client,speed\n0,1\n", "the table of speeds .* must be a CSV file with the columns client, seconds_per_step"),
    ],
)
def test_wrong_files_are_rejected(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "speeds.csv").write_text(text)
    with pytest.raises(UserError, match=message):
        Stragglers(1.0, file=str(tmp_path / "speeds.csv")).check(population=5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"deadline": 0}, "deadline must be above 0, got 0"),
        ({"deadline": float("inf")}, "deadline must be a finite number, got inf"),
        ({"deadline": "a"}, "deadline must be a finite number, got 'a'"),
        ({"deadline": 5, "spread": "x"}, "spread must be a finite number, got 'x'"),
        ({"deadline": 5, "file": 3}, "file must be the path of a file, got 3"),
        ({"deadline": 1.0, "seconds_per_step": -1}, "seconds_per_step must be above 0"),
        ({"deadline": 1.0, "spread": -0.1}, "spread must be from 0 to 20"),
        ({"deadline": 1.0, "jitter": 21}, "jitter must be from 0 to 20"),
        ({"deadline": 1.0, "spread": 0.1, "file": "x.csv"}, "file and spread exclude each other"),
        ({"deadline": 1.0, "policy": "wait"}, "policy must be 'drop' or 'partial'"),
    ],
)
def test_impossible_settings_are_rejected(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Stragglers(**settings)
