"""The checksum of a function changes with what it computes, and with nothing else."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from torch import nn
from torch.nn import functional

from fedcm.errors import UserError
from fedcm.system.code_hash import hash_function, reject_other_functions


def compile_function(text: str) -> Callable[..., Any]:
    """Return the function f of a text, as a notebook defines it."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(text, names)
    return names["f"]


@dataclass(frozen=True)
class Scale:
    factor: float

    def __call__(self, x: float) -> float:
        return self.factor * x


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("f = lambda x: x + 1", "f = lambda x: x + 2"),
        ("f = lambda x: x + 1", "f = lambda x: x - 1"),
        ("f = lambda x: x.sum()", "f = lambda x: x.mean()"),
        ("f = lambda x, k=1: x * k", "f = lambda x, k=2: x * k"),
        ("f = lambda x, *, k=1: x * k", "f = lambda x, *, k=2: x * k"),
        ("f = lambda x: [k + 1 for k in x]", "f = lambda x: [k + 2 for k in x]"),
        ("def f(x):\n  def g(y): return y + 1\n  return g(x)", "def f(x):\n  def g(y): return y + 2\n  return g(x)"),
        ("def make(k): return lambda x: k * x\nf = make(0.1)", "def make(k): return lambda x: k * x\nf = make(0.2)"),
        (
            "def make(g): return lambda x: g(x)\nf = make(lambda x: x + 1)",
            "def make(g): return lambda x: g(x)\nf = make(lambda x: x + 2)",
        ),
        (
            "class F:\n  def __call__(self, x): return x + 1\nf = F()",
            "class F:\n  def __call__(self, x): return x\nf = F()",
        ),
    ],
)
def test_functions_that_compute_something_else_differ(one: str, other: str) -> None:
    assert hash_function(compile_function(one)) == hash_function(compile_function(one))
    assert hash_function(compile_function(one)) != hash_function(compile_function(other))


@pytest.mark.parametrize(
    "other",
    [
        "def f(x):\n    return x in {'a', 'b', 'c'}",
        "\n\n# a comment\ndef f(x):\n    # another\n    return x in {'a', 'b', 'c'}",
        "def f(x):\n    '''New words.'''\n    return x in {'a', 'b', 'c'}",
    ],
)
def test_lines_comments_and_the_docstring_do_not_count(other: str) -> None:
    own = "def f(x):\n    '''Words.'''\n    return x in {'a', 'b', 'c'}"
    assert hash_function(compile_function(own)) == hash_function(compile_function(other))


def test_objects_and_partial_functions() -> None:
    def multiply(x: float, k: float) -> float:
        return k * x

    assert hash_function(partial(multiply, k=2)) != hash_function(partial(multiply, k=3))
    assert hash_function(Scale(2.0)) == hash_function(Scale(2.0)) != hash_function(Scale(3.0))
    smooth = [hash_function(nn.CrossEntropyLoss(label_smoothing=share)) for share in (0.1, 0.1, 0.2)]
    assert smooth[0] == smooth[1] != smooth[2]
    assert hash_function(functional.l1_loss) != hash_function(functional.mse_loss)


def test_a_counter_does_not_count() -> None:
    calls = 0

    def count(x: float) -> float:
        nonlocal calls
        calls += 1
        return x

    before = hash_function(count)
    count(1.0)
    assert hash_function(count) == before


def test_checksums_of_another_version_of_python_are_not_compared() -> None:
    reject_other_functions({"loss": "3.11 a"}, {"loss": "3.12 b", "collate": "3.12 c"}, "the run 'x'")
    with pytest.raises(UserError, match=r"^the run 'x' must be resumed with the loss that it began with, and the code"):
        reject_other_functions({"loss": "3.12 a"}, {"loss": "3.12 b"}, "the run 'x'")
