"""Make the metrics of a training and try them on real examples, before anything is written."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from fedcm.core.evaluation import (
    EVALUATED_SETS,
    PIECE,
    combine_tallies,
    evaluation_mode,
    list_pieces,
    read_piece,
    tally_examples,
)
from fedcm.core.losses import get_scores
from fedcm.core.problem import Problem
from fedcm.core.scoring.metric_set import DEFAULT_METRICS, MetricSet, make_metric_set
from fedcm.core.scoring.whole import MetricFunction
from fedcm.data.dataset import Examples
from fedcm.data.federated import FederatedData, find_client_tests
from fedcm.errors import UserError
from fedcm.system.error_messages import describe_error


def build_metrics(
    entries: Sequence[str | Mapping[str, Any]] | None,
    functions: Mapping[str, MetricFunction],
    problem: Problem,
    data: FederatedData,
) -> MetricSet:
    """Return the metrics that `evaluation.metrics` names, each tried on the first piece of the evaluated data.

    Args:
        entries: The setting; None for the default.
        functions: Functions that are Python objects of this program, by name.
        problem: The model and its loss.
        data: The data, ready for the model.

    Raises:
        UserError: If a metric is unknown or fails, or there is nothing to evaluate.
    """
    if entries is None:
        return DEFAULT_METRICS
    sample, which = _read_sample(data)
    batch = problem.collate(sample)

    def give_sample() -> tuple[Any, Any]:
        with evaluation_mode(problem, problem.initial_params) as model:
            return get_scores(problem.call(model, batch)), batch.labels

    metrics = make_metric_set(entries, functions, give_sample)
    for one in metrics.members:
        alone = MetricSet((one,), is_given=True)
        try:
            with torch.random.fork_rng(devices=[]), evaluation_mode(problem, problem.initial_params) as model:
                score = combine_tallies([tally_examples(problem, model, sample, alone)], alone)
        except Exception as error:
            reason = str(error) if isinstance(error, UserError) else describe_error(error)
            raise UserError(
                f"the metric {one.name!r} failed on the first {sample.size} examples of {which}: {reason}"
            ) from error
        if one.name == "accuracy" and score.accuracy is None:
            raise UserError(
                "the metric 'accuracy' needs class numbers as labels and one output per class; for numbers use 'mae' "
                "or 'rmse'"
            )
    return metrics


def _read_sample(data: FederatedData) -> tuple[Examples, str]:
    """Return the first piece of the evaluated data, and what these are called."""
    for which in EVALUATED_SETS:
        if list_pieces(data, which):
            return read_piece(data, which, 0), f"the {which} data"
    tests = find_client_tests(data)
    if tests is not None and len(tested := tests.list_tested_clients()):
        examples = tests.client_test(int(tested[0]))
        return examples.slice(0, min(PIECE, examples.size)), f"the test data of client {tested[0]}"
    raise UserError(
        "evaluation.metrics needs test data, validation data or test data of clients, and there are none; leave it out"
    )
