"""What a site sends is checked before it counts: a reply that is not what was asked for is as good as none."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from fedcm.experiment import Link
from fedcm.federation.frames import Arrays
from fedcm.federation.links import unpacked, wire_type

_MOST_STEPS = 10**9
_WORDS = {"run", "round", "steps", "loss", "examples", "seconds", "bytes"}


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


def check(words: Mapping[str, Any], arrays: Arrays, expected: Expected) -> Checked:
    if "refused" in words:
        raise BadReply(f"it refused: {str(words['refused'])[:500]}")
    if words.get("run") != expected.run or words.get("round") != expected.round:
        raise BadReply(f"it answers round {words.get('round')!r:.40} of run {words.get('run')!r:.80}")
    if more := set(words) - _WORDS:
        raise BadReply(f"it says more than it was asked: {sorted(map(str, more))[:4]!s:.200}")
    steps, loss = words.get("steps"), words.get("loss")
    if not (isinstance(steps, int) and not isinstance(steps, bool) and 0 < steps <= _MOST_STEPS):
        raise BadReply(f"its number of local steps is {steps!r:.40}")
    if not (isinstance(loss, float) and np.isfinite(loss)):
        raise BadReply(f"its loss is {loss!r:.40}")
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
    if expected.norm_bound is not None and norm > expected.norm_bound:
        raise BadReply(f"the norm of its {name} is {norm:.4g}, above federation.norm_bound = {expected.norm_bound:g}")
    return vector
