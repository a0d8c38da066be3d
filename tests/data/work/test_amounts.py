"""Unequal work: draws, files and functions."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedcm.data.batches import LocalWork
from fedcm.data.dataset import Examples
from fedcm.data.work.amounts import FileWork, UniformWork, WorkFunction
from fedcm.errors import UserError

SMALL = st.integers(1, 50)


def draw_literally(low: int, high: int, seed: int, round: int, client: int) -> int:
    sequence = np.random.SeedSequence(seed, spawn_key=(14, round, client))
    return int(np.random.Generator(np.random.Philox(sequence)).integers(low, high + 1))


@given(SMALL, SMALL, st.integers(0, 2**40), st.integers(0, 1000), st.integers(0, 1000))
def test_uniform_work_is_a_draw_of_seed_round_and_client(
    low: int, more: int, seed: int, round: int, client: int
) -> None:
    work = UniformWork(low, low + more)
    assert work.draw_amount(seed, round, client) == draw_literally(low, low + more, seed, round, client)
    assert low <= work.draw_amount(seed, round, client) <= low + more == work.count_most()
    once = UniformWork(low, low + more, per="client")
    assert once.draw_amount(seed, round, client) == draw_literally(low, low + more, seed, 0, client)


def test_all_numbers_are_equally_likely() -> None:
    draws = [UniformWork(2, 6).draw_amount(1, round, client) for round in range(50) for client in range(40)]
    counts = np.bincount(draws, minlength=7)
    assert counts[:2].sum() == 0
    assert np.abs(counts[2:] - 400).max() <= 4 * np.sqrt(2000 * 0.2 * 0.8)


@pytest.mark.parametrize(
    ("low", "high", "message"),
    [
        (0, 3, "low must be a whole number from 1 to 10⁹, got 0"),
        (4, 3, "low must be at most high, got 4 and 3"),
        (1, 10**20, "high must be a whole number from 1 to 10⁹, got 100000000000000000000"),
        (1.5, 3, "low must be a whole number from 1 to 10⁹, got 1.5"),
        ("a", 3, "low must be a whole number from 1 to 10⁹, got 'a'"),
    ],
)
def test_impossible_bounds_are_rejected(low: Any, high: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        UniformWork(low, high)


def test_numbers_of_numpy_and_paths_are_converted() -> None:
    assert type(UniformWork(np.int64(2), np.int64(3)).low) is int  # pyright: ignore[reportArgumentType]
    assert FileWork(Path("work.csv")).path == "work.csv"  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="path must be the path of a file, got 5"):
        FileWork(5)  # pyright: ignore[reportArgumentType]


def write(folder: Path, text: str, default: int | None = None) -> FileWork:
    (folder / "work.csv").write_text(text)
    return FileWork(str(folder / "work.csv"), default)


def test_row_of_a_round_wins_over_the_row_of_all_rounds_and_that_over_the_default(tmp_path: Path) -> None:
    work = write(tmp_path, "client,round,steps\n0,,3\n0,2,7\n1,1,5\n", default=4)
    assert [work.draw_amount(0, round, 0) for round in range(4)] == [3, 3, 7, 3]
    assert [work.draw_amount(0, round, 1) for round in range(3)] == [4, 5, 4]
    assert work.draw_amount(0, 9, 2) == 4
    assert work.count_most() == 7
    work.check("steps", population=3, rounds=100)


def test_every_client_needs_a_number_in_every_round(tmp_path: Path) -> None:
    work = write(tmp_path, "client,round,steps\n0,,3\n1,0,5\n1,1,5\n")
    work.check("steps", population=2, rounds=2)
    with pytest.raises(UserError, match=r"client 1 has none for round 2; add it, or set client\.steps\.default"):
        work.check("steps", population=2, rounds=3)
    with pytest.raises(UserError, match="client 2 has none for round 0"):
        work.check("steps", population=3, rounds=1)
    with pytest.raises(UserError, match="must have a row for client 5 in round 0"):
        work.draw_amount(0, 0, 5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("client,steps\n0,0\n", "steps in .* must be a whole number of at least 1"),
        ("client,steps\n0,1.5\n", "steps in .* must be a whole number"),
        ("client,steps\n-1,1\n", "client in .* must be a whole number of at least 0"),
        ("client,steps\n0,1\n0,2\n", "client 0 has two for all rounds"),
        ("client,round,steps\n0,3,1\n0,3,2\n", "client 0 has two for round 3"),
        ("client,steps\n0,1\n7,2\n", "must be numbers from 0 to 1, because there are 2 clients, got 7"),
        ("client,epochs\n0,1\n1,1\n", "must have the column 'steps' for client.steps, got 'epochs'"),
        ("client,speed\n0,1\n", "the table of steps .* must be a CSV file with the columns client, steps"),
    ],
)
def test_wrong_files_are_rejected(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        write(tmp_path, text).check("steps", population=2, rounds=1)


def test_function_gets_round_and_client() -> None:
    assert WorkFunction(lambda round, client: 10 * round + client).draw_amount(0, round=2, client=3) == 23


@pytest.mark.parametrize("value", [0, -1, 1.5, True, None, "3"])
def test_function_must_return_a_whole_number(value: object) -> None:
    with pytest.raises(UserError, match="must return a whole number, at least 1, for client 3 in round 2"):
        WorkFunction(lambda round, client: value).draw_amount(0, 2, 3)  # pyright: ignore


def test_function_that_fails_is_named() -> None:
    with pytest.raises(UserError, match=r"the work function .* failed for client 3 in round 2: ZeroDivisionError"):
        WorkFunction(lambda round, client: 1 // 0).draw_amount(0, 2, 3)


@given(st.integers(1, 40), st.integers(1, 8), SMALL, st.integers(0, 9), st.integers(0, 9))
def test_steps_and_epochs_follow_the_amount(size: int, batch: int, high: int, round: int, client: int) -> None:
    work, per_pass = UniformWork(1, high), -(-size // batch)
    amount = work.draw_amount(5, round, client)
    assert LocalWork(batch, steps=work).count_steps(size, 5, round, client) == amount
    assert LocalWork(batch, epochs=work).count_steps(size, 5, round, client) == amount * per_pass
    assert LocalWork(batch, epochs=work).count_most_steps(size) == high * per_pass


def test_stacked_minibatches_are_those_of_each_client_with_unequal_steps() -> None:
    work, sizes = LocalWork(4, steps=UniformWork(1, 6)), np.array([9, 5, 12])
    index, weights = work.draw_stacked_indices(sizes, 3, 1, [0, 1, 2])
    for client, size in enumerate(sizes.tolist()):
        data = Examples(torch.arange(size)[:, None].float(), torch.arange(size))
        alone = [batch.labels.tolist() for batch in work.draw_batches(data, 3, 1, client)]
        rows = zip(index[client], weights[client] > 0, strict=True)
        stacked = [own[used].tolist() for own, used in rows if used.any()]
        assert stacked == alone
        assert len(alone) == work.count_steps(size, 3, 1, client)
