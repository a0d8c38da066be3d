"""What a site reports about a model: its score on the site's own test data, and sums over its validation data."""

import math
from typing import Any

from fedcm.core.algorithm import Round, Vector
from fedcm.core.evaluation import list_pieces, tally_piece
from fedcm.errors import UserError
from fedcm.executors.client_runner import ClientRunner
from fedcm.executors.client_tests import evaluate_client
from fedcm.federation.site.states import SiteStates


def score_on_tests(
    runner: ClientRunner, params: Vector, client: int, round: Round, states: SiteStates, counted: int
) -> dict[str, Any]:
    """Return the score on the site's own test data, and that after its own steps if the experiment asks for it.

    Args:
        runner: Has the model and the site's data.
        params: The shared parameters.
        client: The site's index among the run's sites.
        round: The round.
        states: The site's client states in this run, which have its personal parameters if there are any.
        counted: The site's round that counted last.

    Raises:
        UserError: If the site has no test data, or its personal parameters cannot be read.
    """
    how, state = runner.client_evaluation, runner.initial_state
    if how is None:
        raise UserError("this site has no test data of its own, because it has too few examples")
    if runner.problem.personal_size:
        state = states.read_state_after(counted)
    value, personal = evaluate_client(runner, params, client, state, round)
    scores = {"value": value} if how.epochs is None else {"value": value, "personal": personal}
    return {name: None if math.isnan(score) else score for name, score in scores.items()}


def tally_validation(runner: ClientRunner, params: Vector) -> list[list[float | None]]:
    """Return sums over the site's validation data, one row per piece: weight, loss and the fraction of each metric.

    The numerator of a metric that is not defined is None.
    """
    rows = []
    for start in list_pieces(runner.data, "validation"):
        tally = tally_piece(runner.problem, params, runner.data, start, "validation", runner.metrics)
        numbers = [number for fraction in tally.fractions for number in fraction]
        rows.append([tally.weight, tally.loss, *(None if math.isnan(number) else number for number in numbers)])
    return rows
