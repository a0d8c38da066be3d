"""Runs all clients of a round one after another, in this process."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, final

import numpy as np
import torch

from fedcm.core.aggregation import ReportSum, ReportTable
from fedcm.core.algorithm import Round, Vector
from fedcm.core.evaluation import EVALUATED_SETS, EvaluatedSet, Score, combine_tallies, list_pieces, tally_piece
from fedcm.core.executor import RoundResult
from fedcm.core.scoring.over_clients import ClientScores
from fedcm.errors import Stopped
from fedcm.executors.backdoor import evaluate_backdoor
from fedcm.executors.client_runner import ClientRunner
from fedcm.executors.client_states import ClientStates, ClientStatesInMemory
from fedcm.executors.client_tests import evaluate_client, list_tested_clients
from fedcm.executors.gossip import PendingStates, add_gossip_metrics, mix_nodes
from fedcm.system.callbacks import StopRequested
from fedcm.system.error_messages import add_note
from fedcm.system.storage.mapped_files import release_mapped_files

_MAX_STEP_COUNTS = 32  # different numbers of steps that a line of metrics.jsonl keeps exactly


@final
class LocalExecutor:
    """An executor that runs every client in this process.

    Args:
        runner: Runs the local steps of a client.
        states: The storage of client states; by default in memory.
        stop_requested: Called before each stack of clients; `Stopped` is raised when it returns True.
    """

    def __init__(
        self,
        runner: ClientRunner,
        states: ClientStates | None = None,
        stop_requested: StopRequested = lambda: False,
    ) -> None:
        self.runner = runner
        self.states = states or ClientStatesInMemory(runner.initial_state)
        self.stop_requested = stop_requested

    def run_round(self, sent: Any, cohort: np.ndarray, round: Round) -> RoundResult:
        """Run the local steps of the cohort; see `Executor`."""
        if self.stop_requested():
            raise Stopped
        reports, weights = self.runner.start_reports(sent, cohort, round), self.runner.compute_weights(cohort)
        if not len(cohort):
            return make_empty_result(cohort, self.runner, reports)
        self.states.prepare(cohort, round.index)
        client_stats = self._run_stacks(sent, cohort, round, self.states, reports, weights)
        self.states.commit(cohort, client_stats[:, 2].tolist())
        return summarise_round(self.runner, reports, weights, client_stats, cohort)

    def run_gossip(self, sent: Any, cohort: np.ndarray, round: Round, mixing: np.ndarray) -> RoundResult:
        """Run the local steps and the gossip of all nodes; see `GossipExecutor`."""
        table, pending = ReportTable(self.runner.make_mean(len(cohort)), cohort), PendingStates(self.states)
        weights = np.ones(len(cohort))
        client_stats = self._run_stacks(sent, cohort, round, pending, table, weights)
        result = summarise_round(self.runner, table, weights, client_stats, cohort)
        self.states.prepare(cohort, round.index)
        round, centre = replace(round, steps=result.update_steps), result.mean.params
        mixed = mix_nodes(self.runner, cohort.tolist(), table, mixing, pending, self.states, round, centre)
        self.states.commit(cohort, mixed[:, 2].tolist())
        return add_gossip_metrics(result, mixed, mixing)

    def _run_stacks(
        self,
        sent: Any,
        cohort: np.ndarray,
        round: Round,
        states: ClientStates,
        reports: ReportSum,
        weights: np.ndarray,
    ) -> np.ndarray:
        """Run the local steps of the cohort and return the rows of `ClientRunner.run_stack`."""
        client_stats = np.zeros((len(cohort), 3))
        with torch.random.fork_rng(devices=[]):
            for positions in self.runner.split_into_stacks(cohort):
                if self.stop_requested():
                    raise Stopped
                clients = cohort[positions].tolist()
                try:
                    client_stats[positions] = self.runner.run_stack(
                        clients, sent, states, round, reports, weights[positions]
                    )
                except Exception as error:
                    add_note(error, f"client {clients[0]} failed in round {round.index}")
                    raise
        release_mapped_files()
        return client_stats

    def run_survey(self, params: Vector, cohort: np.ndarray, round: Round) -> Any:
        """Return the mean survey of the cohort; see `SurveyExecutor`."""
        mean, weights = self.runner.make_survey_mean(len(cohort)), self.runner.compute_weights(cohort)
        with torch.random.fork_rng(devices=[]):
            for client, weight in zip(cohort.tolist(), weights.tolist(), strict=True):
                if self.stop_requested():
                    raise Stopped
                try:
                    self.runner.survey_client(client, params, self.states, round, mean, weight)
                except Exception as error:
                    add_note(error, f"client {client} failed in round {round.index}")
                    raise
        return mean.compute(math.fsum(weights))

    def evaluate(self, params: Vector) -> dict[str, Score]:
        """Evaluate parameters on the test data and the validation data; see `Executor`."""
        return evaluate_model(self.runner, params) | evaluate_backdoor(self.runner, params)

    def evaluate_clients(self, params: Vector, round: Round) -> ClientScores:
        """Evaluate parameters on the test data of each client; see `ClientTestExecutor`."""
        clients, how = list_tested_clients(self.runner), self.runner.client_evaluation
        assert how is not None
        rows = []
        for client in clients.tolist():
            if self.stop_requested():
                raise Stopped
            try:
                rows.append(evaluate_client(self.runner, params, client, self.states.get(client), round))
            except Exception as error:
                add_note(error, f"the evaluation of client {client} failed in round {round.index}")
                raise
        return how.make_scores(clients, np.array(rows))


def evaluate_model(
    runner: ClientRunner, params: Vector, sets: Sequence[EvaluatedSet] = EVALUATED_SETS
) -> dict[str, Score]:
    """Evaluate parameters in this process: by set, without those that are empty.

    A model with personal parameters is evaluated only on the clients' own test data, with their own parameters.
    """
    problem, data, metrics = runner.problem, runner.data, runner.metrics
    scores: dict[str, Score] = {}
    if problem.personal_size:
        return scores
    try:
        for which in sets:
            if starts := list_pieces(data, which):
                tallies = (tally_piece(problem, params, data, start, which, metrics) for start in starts)
                scores[which] = combine_tallies(tallies, metrics)
    except Exception as error:
        add_note(error, "the evaluation failed")
        raise
    return scores


def make_empty_result(
    cohort: np.ndarray, runner: ClientRunner | None = None, reports: ReportSum | None = None
) -> RoundResult:
    """Return the result of a round in which no client reported.

    Args:
        cohort: The clients that reported: none.
        runner: Knows the number of steps of a private round.
        reports: The empty sum of the round. If its mean is private, it has noise like any other.
    """
    if runner is None or reports is None or reports.expected_size is None:
        return RoundResult(None, 0, 0.0, math.nan, cohort)
    steps, mean = runner.local_work.steps, reports.compute(cohort, np.ones(0))
    assert isinstance(steps, int), "a private training has the same number of steps everywhere"
    effective = float(runner.sum_step_factors(np.array([steps]))[0])
    return RoundResult(mean, 0, 0.0, math.nan, cohort, reports.describe(), effective, reports.expected_size)


def summarise_round(
    runner: ClientRunner, reports: ReportSum, weights: np.ndarray, client_stats: np.ndarray, cohort: np.ndarray
) -> RoundResult:
    """Return the result of a round.

    Args:
        runner: Has the factors of the local steps.
        reports: The sum to which all reports have been added.
        weights: The weight of each client.
        client_stats: The rows of `ClientRunner.run_stack`, in the order of the cohort.
        cohort: The clients that reported.
    """
    total = math.fsum(weights)
    counts, losses = client_stats.T[:2]
    steps, effective_steps, loss = (
        math.fsum(weights * column) / total for column in (counts, runner.sum_step_factors(counts), losses)
    )
    least, most = int(counts.min()), int(counts.max())
    unequal = {"steps_least": least, "steps_most": most, "steps_clients": count_clients_by_steps(counts)}
    unequal = unequal if least < most else {}
    mean = reports.compute(cohort, weights)
    metrics = unequal | dict(reports.describe())
    return RoundResult(mean, len(cohort), steps, loss, cohort, metrics, effective_steps, reports.expected_size)


def count_clients_by_steps(counts: np.ndarray) -> list[list[int]]:
    """Return pairs [steps, number of clients]; of more than 32 different numbers, only two digits are kept.

    >>> count_clients_by_steps(np.array([3, 5, 3])), count_clients_by_steps(np.arange(100, 140))
    ([[3, 2], [5, 1]], [[100, 10], [110, 10], [120, 10], [130, 10]])
    """
    whole = counts.astype(np.int64)
    if len(np.unique(whole)) > _MAX_STEP_COUNTS:
        unit = np.array([10 ** max(len(str(count)) - 2, 0) for count in whole.tolist()])
        whole = whole // unit * unit
    steps, clients = np.unique(whole, return_counts=True)
    return [[int(own), int(count)] for own, count in zip(steps, clients, strict=True)]
