"""All clients of a round one after another, in this process."""

import math
from collections.abc import Callable
from typing import Any, final

import numpy as np
import torch

from fedcm.core.algorithm import Round, Vector
from fedcm.core.evaluation import Score, combine_tallies, list_pieces, tally_piece
from fedcm.core.executor import RoundResult
from fedcm.errors import Stopped
from fedcm.executors.client_runner import ClientRunner
from fedcm.executors.client_states import ClientStates, ClientStatesInMemory
from fedcm.system.faults import add_note


@final
class LocalExecutor:
    def __init__(
        self,
        runner: ClientRunner,
        states: ClientStates | None = None,
        stop_requested: Callable[[], bool] = lambda: False,
    ) -> None:
        self.runner = runner
        self.states = states or ClientStatesInMemory(runner.algorithm, runner.problem.initial())
        self.stop_requested = stop_requested

    def run_round(self, sent: Any, cohort: np.ndarray, round: Round) -> RoundResult:
        if self.stop_requested():
            raise Stopped
        if not len(cohort):
            return empty_round(cohort)
        mean, weights = self.runner.mean(sent.params, len(cohort)), self.runner.weights(cohort)
        facts = np.zeros((len(cohort), 3))
        self.states.prepare(cohort, round.index)
        with torch.random.fork_rng(devices=[]):
            for unit in self.runner.units(cohort):
                if self.stop_requested():
                    raise Stopped
                clients = cohort[unit].tolist()
                try:
                    facts[unit] = self.runner.run_unit(clients, sent, self.states, round, mean, weights[unit])
                except Exception as error:
                    add_note(error, f"client {clients[0]} failed in round {round.index}")
                    raise
        self.states.commit(cohort, facts[:, 2].tolist())
        return summarise_round(mean, weights, facts, cohort)

    def evaluate(self, params: Vector) -> Score | None:
        return evaluate_model(self.runner, params)


def evaluate_model(runner: ClientRunner, params: Vector) -> Score | None:
    problem, data = runner.problem, runner.data
    if not data.test_size:
        return None
    try:
        return combine_tallies(tally_piece(problem, params, data, start) for start in list_pieces(data))
    except Exception as error:
        add_note(error, "the evaluation failed")
        raise


def empty_round(cohort: np.ndarray) -> RoundResult:
    return RoundResult(None, 0, 0.0, math.nan, cohort)


def summarise_round(mean: Any, weights: np.ndarray, facts: np.ndarray, cohort: np.ndarray) -> RoundResult:
    """`facts` has the steps, the loss and a checksum of each client, in the cohort's order."""
    total = math.fsum(weights)
    steps, loss = (math.fsum(weights * column) / total for column in facts.T[:2])
    return RoundResult(mean.value(total), len(cohort), steps, loss, cohort)
