"""CSV files of numbers: columns in any order, and a one-sentence error for everything else."""

import hashlib
from pathlib import Path

import pytest

from fedcm.errors import UserError
from fedcm.system.storage.number_files import read_number_file, to_whole_number


def read(folder: Path, text: str):
    (folder / "made.csv").write_text(text)
    return read_number_file(str(folder / "made.csv"), "table", ("client", "steps"), ("round",))


def test_columns_may_be_in_any_order_and_optional_ones_missing_or_empty(tmp_path: Path) -> None:
    assert read(tmp_path, "steps, client\n3,0\n\n4,1\n").rows == [(0, 3, None), (1, 4, None)]
    assert read(tmp_path, "\ufeffround,client,steps\r\n,0,3\r\n2,1,4.5\r\n").rows == [(0, 3, None), (1, 4.5, 2)]
    assert read(tmp_path, "client,steps\n").rows == []


def test_checksum_is_that_of_the_file(tmp_path: Path) -> None:
    text = "client,steps\n0,3\n"
    assert read(tmp_path, text).sha256 == hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must be a CSV file with the columns client, steps and optionally round, got nothing"),
        ("client,speed\n0,1\n", "must be a CSV file with the columns client, steps"),
        ("client,steps,steps\n0,1,1\n", "must be a CSV file with the columns"),
        ("client,steps\n0\n", "line 2 of the table .* must have 2 cells, got 1"),
        ("client,steps\n0,1\n1,\n", "line 3 of the table .* must have numbers, got '1,'"),
        ("client,steps\n0,many\n", "line 2 of the table .* must have numbers"),
        ("client,steps\n0,inf\n", "line 2 of the table .* must have numbers"),
        ('client,steps\n0,"1\n', "cannot be read"),
    ],
)
def test_other_files_are_rejected(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read(tmp_path, text)


def test_missing_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot be read: No such file or directory$"):
        read_number_file(str(tmp_path / "none.csv"), "table", ("client",))


def test_whole_numbers_are_checked(tmp_path: Path) -> None:
    table = read(tmp_path, "client,steps\n0,3\n")
    assert to_whole_number(table, "client", 3.0) == 3
    for value in (2.5, -1.0, 7.0):
        with pytest.raises(UserError, match=r"client in .* must be a whole number of at least 0 and at most 6"):
            to_whole_number(table, "client", value, below=7)
