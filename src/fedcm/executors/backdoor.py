"""The success of a simulated backdoor: how often the trigger turns a test example of another class into the target."""

from collections.abc import Iterable, Sequence

from fedcm.core.algorithm import Vector
from fedcm.core.evaluation import (
    Score,
    Tally,
    combine_tallies,
    evaluation_mode,
    list_pieces,
    read_piece,
    tally_examples,
)
from fedcm.core.scoring.metric_set import MetricSet
from fedcm.core.scoring.summed import Fraction, SummedMetric, count_correct
from fedcm.core.scoring.traits import SHARE
from fedcm.executors.client_runner import ClientRunner

BACKDOOR = "backdoor"  # the name of the triggered test data in metrics.jsonl
_SUCCESS = MetricSet((SummedMetric("success", SHARE, count_correct),), is_given=True)
_EMPTY = Tally(0, 0.0, (Fraction(0.0, 0.0),))


def list_triggered_pieces(runner: ClientRunner) -> Sequence[int]:
    """Return the pieces of the test data that get a trigger; none without a backdoor or without test data."""
    has_trigger = runner.poison is not None and runner.poison.has_trigger and not runner.problem.personal_size
    return list_pieces(runner.data) if has_trigger else ()


def tally_triggered(runner: ClientRunner, params: Vector, start: int) -> Tally:
    """Evaluate one piece of the test data with the trigger; examples of the target class are left out."""
    assert runner.poison is not None
    examples = runner.poison.trigger_others(read_piece(runner.data, "test", start))
    if not examples.size:
        return _EMPTY
    with evaluation_mode(runner.problem, params, start) as model:
        return tally_examples(runner.problem, model, examples, _SUCCESS)


def score_backdoor(tallies: Iterable[Tally]) -> dict[str, Score]:
    """Return the result on all pieces, by the name of the set; empty without any triggered example."""
    tallies = list(tallies)
    return {BACKDOOR: combine_tallies(tallies, _SUCCESS)} if any(one.weight for one in tallies) else {}


def evaluate_backdoor(runner: ClientRunner, params: Vector) -> dict[str, Score]:
    """Evaluate the success of the backdoor in this process, if there is one."""
    return score_backdoor(tally_triggered(runner, params, start) for start in list_triggered_pieces(runner))
