"""What a site sends is checked before it counts: a reply that is not what was asked for is as good as none."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from fedcm.config.experiment import Link
from fedcm.federation.compression import unpacked, wire_type
from fedcm.federation.frames import Arrays

_LARGEST_LOSS = 1e30
_WORDS = {"run", "round", "steps", "loss", "examples", "seconds", "bytes"}
_ABSURD = 1e18  # a norm above it spoils the mean for good, whatever federation.norm_bound allows


class BadReply(ValueError):  # noqa: N818
    """Why a reply does not count, in a few words."""


class Checked(NamedTuple):
    report: Any  # the algorithm's
    steps: int
    loss: float
    seconds: float  # that the site says it took


class Expected(NamedTuple):
    """What every good reply to a round has in common."""

    run: str
    round: int
    kind: type  # the algorithm's Report
    size: int  # of a vector
    dtype: torch.dtype
    link: Link
    norm_bound: float | None


def check(words: Mapping[str, Any], arrays: Arrays, expected: Expected, steps: int) -> Checked:
    """`steps` is how many local steps this site takes, by what it said of its data."""
    try:
        return _checked(words, arrays, expected, steps)
    except BadReply:
        raise
    except Exception as error:  # whatever a site made up, it is the reply that is at fault
        raise BadReply(f"it cannot be read ({type(error).__name__})") from None


def _checked(words: Mapping[str, Any], arrays: Arrays, expected: Expected, steps: int) -> Checked:
    if "refused" in words:
        raise BadReply(f"it refused: {str(words['refused'])[:500]}")
    run, round = words.get("run"), words.get("round")
    if not (isinstance(run, str) and isinstance(round, int) and (run, round) == (expected.run, expected.round)):
        raise BadReply(f"it answers round {str(round)[:40]} of run {str(run)[:80]}")
    if more := set(words) - _WORDS:
        raise BadReply(f"it says more than it was asked: {str(sorted(map(str, more))[:4])[:200]}")
    if words.get("steps") != steps:
        raise BadReply(f"its number of local steps is {str(words.get('steps'))[:40]}, where its data make {steps}")
    loss = words.get("loss")
    if not (isinstance(loss, float) and abs(loss) < _LARGEST_LOSS):
        raise BadReply(f"its loss is {str(loss)[:40]}")
    names: tuple[str, ...] = getattr(expected.kind, "_fields", ())
    if set(arrays) != set(names):
        raise BadReply(f"it holds {sorted(map(str, arrays))[:8]} where {list(names)} belong")
    report = expected.kind(*[_vector(name, arrays[name], expected) for name in names])
    return Checked(report, steps, loss, _seconds(words.get("seconds")))


def _seconds(said: Any) -> float:
    """For the record alone, so that nonsense is no reason to refuse the work."""
    return round(said, 6) if isinstance(said, float) and 0 <= said < 1e9 else 0.0


def _vector(name: str, array: Any, expected: Expected) -> torch.Tensor:
    kind = wire_type(expected.link, expected.dtype)
    if not isinstance(array, np.ndarray) or array.dtype != kind or array.shape != (expected.size,):
        got = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
        raise BadReply(f"its {name} is {got} where {kind} {(expected.size,)} belongs")
    vector = unpacked(np.ascontiguousarray(array), expected.link, expected.dtype)
    norm = torch.linalg.vector_norm(vector, dtype=torch.float64).item()
    if not np.isfinite(norm):
        raise BadReply(f"its {name} is not finite")
    if norm > _ABSURD:
        raise BadReply(f"the norm of its {name} is {norm:.4g}, which no site that trains reports")
    if expected.norm_bound is not None and norm > expected.norm_bound:
        raise BadReply(f"the norm of its {name} is {norm:.4g}, above federation.norm_bound = {expected.norm_bound:g}")
    return vector
