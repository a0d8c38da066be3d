"""Evaluate a model on the test data of single clients, before and after each client's own steps."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch

from fedcm.core.algorithm import Round, Vector
from fedcm.core.evaluation import PIECE, combine_tallies, evaluation_mode, tally_examples
from fedcm.core.local.personal import PersonalSteps
from fedcm.core.scoring.metric_set import MetricSet
from fedcm.core.scoring.over_clients import ClientScores
from fedcm.data.dataset import Examples
from fedcm.data.federated import find_client_tests
from fedcm.rng import Purpose, make_generator, make_torch_seed

if TYPE_CHECKING:
    from fedcm.executors.client_runner import ClientRunner


@final
@dataclass(frozen=True)
class ClientEvaluation:
    """How clients are evaluated.

    Attributes:
        metrics: The headline metric alone.
        by_loss: Whether the loss is the result instead, because the headline is not defined.
        epochs: Passes over a client's own training data before its second evaluation; None for no such evaluation.
    """

    metrics: MetricSet
    by_loss: bool = False
    epochs: int | None = None

    @property
    def metric(self) -> str:
        """The name of the metric."""
        return "loss" if self.by_loss else self.metrics.headline

    def make_scores(self, clients: np.ndarray, table: np.ndarray) -> ClientScores:
        """Return the scores from a row per client: the value of the global model and that of the client's own."""
        better = not self.by_loss and self.metrics.traits[self.metrics.headline].higher_is_better
        personal = table[:, 1] if self.epochs is not None else None
        return ClientScores(self.metric, better, clients, table[:, 0], personal)


def list_tested_clients(runner: "ClientRunner") -> np.ndarray:
    """Return the clients that have test data of their own."""
    tests = find_client_tests(runner.data)
    assert tests is not None
    return tests.list_tested_clients()


def evaluate_client(
    runner: "ClientRunner", params: Vector, client: int, state: Any, round: Round
) -> tuple[float, float]:
    """Return the metric of one client with the global model, and after its own steps; NaN where it is not defined.

    Args:
        runner: Has the model and the data.
        params: The shared parameters.
        client: The client.
        state: The client's state, which has its personal parameters if there are any.
        round: The round.
    """
    how, tests = runner.client_evaluation, find_client_tests(runner.data)
    assert how is not None
    assert tests is not None
    _, kept = runner.split_state(state)
    personal = None if kept is None else PersonalSteps(kept.params, step_decay=runner.step_decay)  # plain SGD below
    examples = tests.client_test(client)
    value = _score(runner, how, params, examples)
    if how.epochs is None:
        return value, math.nan
    return value, _score(runner, how, personalise(runner, params, client, round, how.epochs, personal), examples)


def _score(runner: "ClientRunner", how: ClientEvaluation, params: Vector, examples: Examples) -> float:
    tallies = []
    for start in range(0, examples.size, PIECE):
        with evaluation_mode(runner.problem, params, start) as model:
            piece = examples.slice(start, min(start + PIECE, examples.size))
            tallies.append(tally_examples(runner.problem, model, piece, how.metrics))
    score = combine_tallies(tallies, how.metrics)
    value = score.loss if how.by_loss else score.metrics[how.metric]
    return value if value is not None and math.isfinite(value) else math.nan


def personalise(
    runner: "ClientRunner",
    params: Vector,
    client: int,
    round: Round,
    epochs: int,
    personal: PersonalSteps | None = None,
) -> Vector:
    """Return the parameters after plain SGD steps of a client on its own training data, from `params`.

    The steps have the client's batch size, learning rate, weight decay and clipping, and no term of an algorithm.
    Personal parameters take the same steps, in place.
    """
    problem, data = runner.problem, runner.data.client(client)
    generator = make_generator(runner.seed, Purpose.PERSONALISATION, round.index, client)
    current, total, count = params.clone(), torch.zeros_like(params), 0
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        problem.reseed(make_torch_seed(runner.seed, Purpose.PERSONALISATION, round.index, client))
        for _ in range(epochs):
            order = torch.from_numpy(generator.permutation(data.size)).to(data.device)
            for index in order.split(runner.local_work.batch_size):
                gradient = problem.gradient(problem.collate(data.select(index)))
                direction = gradient(current)
                if personal is not None and gradient.personal is not None:
                    personal.take(gradient.personal, round.client_lr, count)
                    count += 1
                if runner.step_decay:
                    direction = direction.add(current, alpha=runner.step_decay)
                total += direction
                current = params - round.client_lr * total
    return current
