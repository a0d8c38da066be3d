"""Check what sites report about a model: the score on a site's own test data, or the sums over its validation data."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from fedcm.core.evaluation import PIECE, Tally
from fedcm.core.scoring.metric_set import MetricSet
from fedcm.core.scoring.summed import UNDEFINED, Fraction
from fedcm.executors.client_tests import ClientEvaluation
from fedcm.federation.server.replies import MAX_LOSS, BadReply, check_round, reading_reply
from fedcm.federation.trust.foreign_text import clean_text

_MAX_WEIGHT = 2**40  # labels of one piece


class ExpectedTallies(NamedTuple):
    """What the sums over the validation data of every site have in common."""

    metrics: MetricSet
    defined: tuple[bool, ...]  # for each metric, whether the model's outputs and the labels allow it


def check_score(fields: Mapping[str, Any], run: str, round: int, how: ClientEvaluation) -> tuple[float, float]:
    """Check a site's score and return it, with that of its personalised model; NaN where there is none.

    Args:
        fields: The reply's JSON values.
        run: The run's id.
        round: The round's index.
        how: How clients are evaluated.

    Raises:
        BadReply: If the reply does not count.
    """
    keys = ("value",) if how.epochs is None else ("value", "personal")
    with reading_reply():
        check_round(fields, run, round, {*keys, "seconds"})
        if missing := [key for key in keys if key not in fields]:
            raise BadReply(f"its reply must have {missing[0]!r}")
        is_share = not how.by_loss and how.metrics.traits[how.metric].is_share
        value, personal = (_read_score(fields.get(key), is_share=is_share) for key in ("value", "personal"))
        return value, personal


def _read_score(value: Any, *, is_share: bool) -> float:
    if value is None:
        return math.nan
    if not (isinstance(value, float) and abs(value) < MAX_LOSS) or (is_share and not 0 <= value <= 1):
        raise BadReply(f"its score is {clean_text(value, 40)}")
    return value


def check_tallies(
    fields: Mapping[str, Any], run: str, round: int, examples: int, expected: ExpectedTallies
) -> list[Tally]:
    """Check the sums of a site and return them, one tally per piece.

    Args:
        fields: The reply's JSON values.
        run: The run's id.
        round: The round's index.
        examples: The number of the site's validation examples.
        expected: What every good reply has in common.

    Raises:
        BadReply: If the reply does not count.
    """
    with reading_reply():
        check_round(fields, run, round, {"tallies", "seconds"})
        rows, pieces = fields.get("tallies"), math.ceil(examples / PIECE)
        if not (isinstance(rows, list) and len(rows) == pieces):
            raise BadReply(f"it must report on {examples} validation examples in {pieces} pieces")
        return [_read_tally(row, expected) for row in rows]


def _read_tally(row: Any, expected: ExpectedTallies) -> Tally:
    metrics = expected.metrics.summed
    if not (isinstance(row, list) and len(row) == 2 + 2 * len(metrics)):
        raise BadReply(f"its sums must be lists of {2 + 2 * len(metrics)} numbers")
    weight, loss = row[:2]
    if not (type(weight) is int and 1 <= weight < _MAX_WEIGHT):
        raise BadReply(f"the weight of its sums is {clean_text(weight, 40)}")
    _check_number(loss, "loss")
    fractions = []
    for one, defined, start in zip(metrics, expected.defined, range(2, len(row), 2), strict=True):
        numerator, denominator = row[start : start + 2]
        if not defined:
            fractions.append(UNDEFINED)
            continue
        _check_number(numerator, one.name)
        _check_number(denominator, one.name)
        if denominator <= 0 or (one.traits.is_share and not 0 <= numerator <= denominator):
            raise BadReply(f"its sums of {one.name} are {numerator:g} and {denominator:g}")
        fractions.append(Fraction(numerator, denominator))
    return Tally(weight, loss, tuple(fractions))


def _check_number(value: Any, name: str) -> None:
    if not (isinstance(value, float) and abs(value) < MAX_LOSS):
        raise BadReply(f"its sum of {name} is {clean_text(value, 40)}")
