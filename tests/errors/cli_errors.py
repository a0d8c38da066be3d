"""Helpers of the tests of errors: check that a command rejects its input, and bad input to try."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scenes import Answer

Fedcm = Callable[..., Answer]
Write = Callable[..., Path]

ALGORITHM = """
from dataclasses import dataclass
from fedcm.core.algorithm import Algorithm, Nothing
from fedcm.algorithms.averaging.fedavg import Broadcast, FedAvg, Report, ServerState
"""


def assert_rejected(answer: Answer, message: str, other_lines: str | None = None) -> str:
    """Check that a command exits with code 2 and one sentence on stderr, and return the sentence.

    Args:
        answer: What the command printed.
        message: A part of the sentence.
        other_lines: A pattern of the lines that may come before it; by default there are none.
    """
    assert answer.code == 2, answer.err
    assert answer.out == ""
    assert "Traceback" not in answer.err
    *other, sentence = answer.err.splitlines()
    assert sentence.startswith("fedcm: ")
    assert message in sentence
    for line in other:
        assert other_lines is not None, f"only the error was expected, got also {line!r}"
        assert re.match(other_lines, line)
    return sentence


def make_params(*rows: tuple[Any, ...]) -> list[Any]:
    """Return pytest parameters from rows whose first value is the id: what is wrong."""
    return [pytest.param(*row[1:], id=row[0]) for row in rows]


def read_files(folder: Path) -> dict[str, bytes]:
    """Return the content of all files in a folder except the lock, by path."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def make_arrays(**changes: Any) -> dict[str, Any]:
    """Return the arrays of a valid .npz file with these changes; None removes an array."""
    generator = np.random.default_rng(0)
    arrays = {
        "x_train": generator.normal(size=(40, 6)).astype(np.float32),
        "y_train": np.arange(40) % 4,
        "x_test": generator.normal(size=(8, 6)).astype(np.float32),
        "y_test": np.arange(8) % 4,
    } | changes
    return {key: value for key, value in arrays.items() if value is not None}
