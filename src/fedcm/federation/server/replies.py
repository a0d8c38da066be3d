"""Check a site's reply before it counts; a reply that is not what was requested is treated like no reply."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch

from fedcm.config.sections import Link
from fedcm.federation.compression import get_wire_dtype, unpack
from fedcm.federation.frames import REJECTED, Arrays
from fedcm.federation.trust.foreign_text import clean_text

MAX_LOSS = 1e30
_MAX_STATES = 1000  # rounds in a site's list of its client states
_MAX_NORM = 1e18  # a larger report would spoil the mean for good, whatever federation.norm_bound allows
_BYTES_PER_ENTRY = 16  # of a report, at most: two integers with secure aggregation over float64
_BYTES_BESIDES = 2**24  # of a reply: everything but the report
_KEYS = {"steps", "examples", "seconds", "bytes"}


class BadReply(ValueError):  # noqa: N818
    """A reply does not count; the message says why in a few words."""


class CheckedReply(NamedTuple):
    """A reply that counts."""

    report: Any  # the algorithm's
    steps: int
    loss: float  # nan in a private run
    seconds: float  # the site's own measurement


class ExpectedReply(NamedTuple):
    """What every good reply of a round has in common."""

    run: str
    round: int
    template: Any  # a report of the algorithm, for its fields, their shapes and dtypes
    link: Link
    norm_bound: float | None
    has_loss: bool = True  # False in a private run


def compute_reply_limit(template: Any) -> int:
    """Return how many bytes a reply can need, given a report of the algorithm."""
    return _BYTES_PER_ENTRY * sum(vector.numel() for vector in template) + _BYTES_BESIDES


def check_reply(fields: Mapping[str, Any], arrays: Arrays, expected: ExpectedReply, steps: int) -> CheckedReply:
    """Check a reply and unpack its report.

    Args:
        fields: The reply's JSON values.
        arrays: The reply's vectors.
        expected: What every good reply has in common.
        steps: The number of local steps that the site must take, given its number of examples.

    Raises:
        BadReply: If the reply does not count.
    """
    with reading_reply():
        return _check(fields, arrays, expected, steps)


@contextmanager
def reading_reply() -> Iterator[None]:
    """Raise BadReply for every error in this block, because a site can send anything."""
    try:
        yield
    except BadReply:
        raise
    except Exception as error:
        raise BadReply(f"its reply cannot be read ({type(error).__name__})") from None


def check_round(fields: Mapping[str, Any], expected_run: str, expected_round: int, keys: set[str]) -> None:
    """Raise BadReply if a reply reports an error, answers another round, or has keys besides these."""
    if REJECTED in fields:
        raise BadReply(f"it reports: {clean_text(fields[REJECTED])}")
    run, round = fields.get("run"), fields.get("round")
    if not (isinstance(run, str) and isinstance(round, int) and (run, round) == (expected_run, expected_round)):
        raise BadReply(f"it answers round {clean_text(round, 40)} of run {clean_text(run, 80)}")
    if unknown := set(fields) - keys - {"run", "round"}:
        raise BadReply(f"its reply has unknown keys: {clean_text(sorted(map(str, unknown))[:4], 200)}")


def _check(fields: Mapping[str, Any], arrays: Arrays, expected: ExpectedReply, steps: int) -> CheckedReply:
    check_round(fields, expected.run, expected.round, _KEYS | ({"loss"} if expected.has_loss else set()))
    if fields.get("steps") != steps:
        raise BadReply(
            f"its number of local steps is {clean_text(fields.get('steps'), 40)}, but its data require {steps}"
        )
    loss: Any = fields.get("loss") if expected.has_loss else math.nan
    if not isinstance(loss, float) or (expected.has_loss and not abs(loss) < MAX_LOSS):
        raise BadReply(f"its loss is {clean_text(loss, 40)}")
    names: tuple[str, ...] = expected.template._fields
    if set(arrays) != set(names):
        raise BadReply(f"its vectors must be {list(names)}, got {clean_text(sorted(map(str, arrays))[:8])}")
    report = type(expected.template)(*[_read_vector(name, arrays[name], expected) for name in names])
    return CheckedReply(report, steps, loss, read_seconds(fields.get("seconds")))


def read_state_offer(fields: Mapping[str, Any], expected_run: str) -> set[int]:
    """Return the rounds of a run after which a site has a client state.

    Raises:
        BadReply: If the reply is not such a list.
    """
    with reading_reply():
        if REJECTED in fields:
            raise BadReply(f"it reports: {clean_text(fields[REJECTED])}")
        rounds = fields.get("states")
        if fields.get("run") != expected_run or not isinstance(rounds, list) or len(rounds) > _MAX_STATES:
            raise BadReply("its reply is not a list of rounds of this run")
        return {int(round) for round in rounds}


def read_seconds(value: Any) -> float:
    """Return 0 for nonsense: the time is only recorded, so it is no reason to reject the report."""
    return round(value, 6) if isinstance(value, float) and 0 <= value < 1e9 else 0.0


def _read_vector(name: str, array: Any, expected: ExpectedReply) -> torch.Tensor:
    like: torch.Tensor = getattr(expected.template, name)
    dtype, shape = get_wire_dtype(expected.link, like.dtype), tuple(like.shape)
    if not isinstance(array, np.ndarray) or array.dtype != dtype or array.shape != shape:
        given = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
        raise BadReply(f"its {name} must be {dtype} {shape}, got {given}")
    vector = unpack(np.ascontiguousarray(array), expected.link, like.dtype)
    norm = torch.linalg.vector_norm(vector, dtype=torch.float64).item()
    if not np.isfinite(norm):
        raise BadReply(f"its {name} is not finite")
    if norm > _MAX_NORM:
        raise BadReply(f"the norm of its {name} is {norm:.4g}, above the largest that can be averaged, {_MAX_NORM:g}")
    if expected.norm_bound is not None and norm > expected.norm_bound:
        raise BadReply(f"the norm of its {name} is {norm:.4g}, above federation.norm_bound = {expected.norm_bound:g}")
    return vector
