"""What the tests of refusals share: how an answer is read, and rows of what is wrong."""

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
from fedcm.algorithms.fedavg import Broadcast, FedAvg, Report, ServerState
"""


def refused(answer: Answer, said: str, informed: str | None = None) -> str:
    """The refusal's sentence: it says `said`, and only lines that match `informed` may stand before it."""
    assert answer.code == 2, answer.err
    assert answer.out == ""
    assert "Traceback" not in answer.err
    *before, sentence = answer.err.splitlines()
    assert sentence.startswith("fedcm: ")
    assert said in sentence
    for line in before:
        assert informed is not None, f"only the refusal was expected, got also {line!r}"
        assert re.match(informed, line)
    return sentence


def cases(*rows: tuple[Any, ...]) -> list[Any]:
    """Parameters from rows that begin with what is wrong."""
    return [pytest.param(*row[1:], id=row[0]) for row in rows]


def contents(folder: Path) -> dict[str, bytes]:
    """All files but the lock, which says nothing."""
    found = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def arrays(**changes: Any) -> dict[str, Any]:
    draw = np.random.default_rng(0)
    made = {
        "x_train": draw.normal(size=(40, 6)).astype(np.float32),
        "y_train": np.arange(40) % 4,
        "x_test": draw.normal(size=(8, 6)).astype(np.float32),
        "y_test": np.arange(8) % 4,
    } | changes
    return {key: value for key, value in made.items() if value is not None}
