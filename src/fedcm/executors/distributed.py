"""Runs a round on several processes: each runs its part of the cohort, then the integer totals are added.

There is no server process. Every process holds the server state and makes the same update from the same mean.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from fedcm.core.aggregation import ReportTable
from fedcm.core.algorithm import Nothing, Round, Vector
from fedcm.core.evaluation import (
    EVALUATED_SETS,
    EvaluatedSet,
    Score,
    Tally,
    compute_whole_metrics,
    count_examples,
    join_rows,
    list_pieces,
    read_piece,
    tally_piece,
)
from fedcm.core.exact_mean import ExactMean
from fedcm.core.executor import RoundResult
from fedcm.core.scoring.over_clients import ClientScores
from fedcm.core.scoring.summed import Fraction
from fedcm.errors import Diverged, Stopped, TrainingFailed
from fedcm.executors.backdoor import list_triggered_pieces, score_backdoor, tally_triggered
from fedcm.executors.client_runner import ClientRunner
from fedcm.executors.client_states import ClientStates
from fedcm.executors.client_tests import evaluate_client, list_tested_clients
from fedcm.executors.gossip import PendingStates, add_gossip_metrics, mix_nodes
from fedcm.executors.local import make_empty_result, summarise_round
from fedcm.executors.process_group import ProcessGroup, WorkerStatus, divide_work, gather_rows
from fedcm.system.callbacks import StopRequested
from fedcm.system.error_messages import describe_failure_with_traceback, is_disk_error
from fedcm.system.storage.mapped_files import release_mapped_files


@final
class DistributedExecutor:
    """An executor that shares the clients of a round with the other processes of a group.

    Args:
        runner: Runs the local steps of a client.
        states: The storage of client states.
        group: The processes that share the clients.
        stop_requested: Called before each stack of clients; all processes raise `Stopped` if it returns True in one.
        on_client: Called with the round and the client before each stack, so that the death of this process can be
            reported with both.
    """

    def __init__(
        self,
        runner: ClientRunner,
        states: ClientStates,
        group: ProcessGroup,
        stop_requested: StopRequested = lambda: False,
        on_client: Callable[[int, int], None] = lambda round, client: None,
    ) -> None:
        self.runner = runner
        self.states = states
        self.group = group
        self.stop_requested = stop_requested
        self.on_client = on_client

    def run_round(self, sent: Any, cohort: np.ndarray, round: Round) -> RoundResult:
        """Run the local steps of the cohort; see `Executor`. Every process calls it and gets the same result."""
        reports, weights = self.runner.start_reports(sent, cohort, round), self.runner.compute_weights(cohort)
        self.states.prepare(cohort, round.index)

        def run(positions: list[int]) -> np.ndarray:
            clients = cohort[positions].tolist()
            return self.runner.run_stack(clients, sent, self.states, round, reports, weights[positions])

        client_stats = self._share(cohort, round, self.runner.split_into_stacks(cohort), reports.sum, run, reports.rows)
        if not len(cohort):
            return make_empty_result(cohort, self.runner, reports)
        self.states.commit(cohort, client_stats[:, 2].tolist())
        return summarise_round(self.runner, reports, weights, client_stats, cohort)

    def run_gossip(self, sent: Any, cohort: np.ndarray, round: Round, mixing: np.ndarray) -> RoundResult:
        """Run the local steps and the gossip of all nodes; see `GossipExecutor`. Every process gets the same result.

        The stacks are divided in the same way both times, so a node is mixed by the process that has its state.
        """
        table, pending = ReportTable(self.runner.make_mean(len(cohort)), cohort), PendingStates(self.states)
        weights, stacks = np.ones(len(cohort)), self.runner.split_into_stacks(cohort)

        def run(positions: list[int]) -> np.ndarray:
            clients = cohort[positions].tolist()
            return self.runner.run_stack(clients, sent, pending, round, table, weights[positions])

        client_stats = self._share(cohort, round, stacks, table.sum, run, table.rows)
        result = summarise_round(self.runner, table, weights, client_stats, cohort)
        self.states.prepare(cohort, round.index)
        after, centre = replace(round, steps=result.update_steps), result.mean.params

        def mix(positions: list[int]) -> np.ndarray:
            clients = cohort[positions].tolist()
            return mix_nodes(self.runner, clients, table, mixing, pending, self.states, after, centre)

        mixed = self._share(cohort, round, stacks, ExactMean(Nothing(), len(cohort)), mix)
        self.states.commit(cohort, mixed[:, 2].tolist())
        return add_gossip_metrics(result, mixed, mixing)

    def run_survey(self, params: Vector, cohort: np.ndarray, round: Round) -> Any:
        """Return the mean survey of the cohort; see `SurveyExecutor`. Every process gets the same result."""
        mean, weights = self.runner.make_survey_mean(len(cohort)), self.runner.compute_weights(cohort)

        def run(positions: list[int]) -> np.ndarray:
            (position,) = positions
            client, weight = int(cohort[position]), float(weights[position])
            self.runner.survey_client(client, params, self.states, round, mean, weight)
            return np.zeros((1, 3))

        self._share(cohort, round, [[position] for position in range(len(cohort))], mean, run)
        return mean.compute(math.fsum(weights))

    def _share(
        self,
        cohort: np.ndarray,
        round: Round,
        stacks: list[list[int]],
        mean: ExactMean[Any],
        run: Callable[[list[int]], np.ndarray],
        rows: Sequence[Tensor] = (),
    ) -> np.ndarray:
        """Run this process's share of the stacks, and sum the results over all processes.

        Args:
            cohort: The clients of the round.
            round: The round.
            stacks: The positions in the cohort that are run together.
            mean: The mean to which `run` adds; it is complete afterwards.
            run: Runs one stack and returns a row for each client: its steps, its loss and the checksum of its state.
            rows: Further integers that `run` fills in; they are complete afterwards.

        Returns:
            The rows of the whole cohort.
        """
        client_stats = torch.zeros((len(cohort), 3), dtype=torch.float64)
        steps = self.runner.count_steps(cohort, round.index)
        own_stacks = divide_work([steps[stack].sum() for stack in stacks], self.group.size)[self.group.rank]
        status, message, client = WorkerStatus.OK, "", -1
        try:
            with torch.random.fork_rng(devices=[]):
                for positions in (stacks[k] for k in own_stacks):
                    client = int(cohort[positions[0]])
                    self.on_client(round.index, client)
                    if self.stop_requested():
                        raise Stopped
                    client_stats[positions] = torch.from_numpy(run(positions))
            if self.stop_requested():
                raise Stopped
        except Stopped:
            status = WorkerStatus.STOPPED
        except Diverged as error:
            status, message = WorkerStatus.DIVERGED, str(error)
        except TrainingFailed:  # another worker did
            raise
        except Exception as error:
            where = f"client {client} failed in round {round.index} on worker {self.group.rank}"
            if is_disk_error(error):
                status, message = WorkerStatus.WRITE_FAILED, f"{error} ({where})"
            else:
                status, message = WorkerStatus.FAILED, describe_failure_with_traceback(error, where)
                if self.group.rank:
                    self.group.raise_alarm(message)
        high_limbs = self.group.sum_results(status, message, client_stats, mean.totals, mean.high_limbs)
        for integers in [*mean.allocate_high_limbs(high_limbs), *rows]:
            self.group.sum_(integers)
        release_mapped_files()
        return client_stats.numpy()

    def evaluate(self, params: Vector) -> dict[str, Score]:
        """Evaluate parameters; see `Executor`. Every process evaluates some pieces and gets the same result."""
        data = self.runner.data
        if self.runner.problem.personal_size:
            return {}  # see `evaluate_model`
        scores = {which: self._evaluate_set(params, which) for which in EVALUATED_SETS if list_pieces(data, which)}
        if starts := list_triggered_pieces(self.runner):
            tallies, _ = self._share_pieces(starts, 1, lambda start: tally_triggered(self.runner, params, start))
            scores |= score_backdoor(tallies)
        return scores

    def evaluate_clients(self, params: Vector, round: Round) -> ClientScores:
        """Evaluate parameters on the test data of each client; every process evaluates some and gets all results."""
        clients, how = list_tested_clients(self.runner), self.runner.client_evaluation
        assert how is not None
        table = torch.zeros((len(clients), 2), dtype=torch.float64)
        status, message = WorkerStatus.OK, ""
        try:
            for position in range(self.group.rank, len(clients), self.group.size):
                if self.stop_requested():
                    raise Stopped
                client = int(clients[position])
                row = evaluate_client(self.runner, params, client, self.states.get(client), round)
                table[position] = torch.tensor(row, dtype=torch.float64)
        except TrainingFailed:  # another worker did
            raise
        except Stopped:
            status = WorkerStatus.STOPPED
        except Exception as error:
            status, message = self._describe_evaluation_failure(error)
        self.group.sum_results(status, message, table, [])
        return how.make_scores(clients, table.numpy())

    def _evaluate_set(self, params: Vector, which: EvaluatedSet) -> Score:
        problem, data, metrics = self.runner.problem, self.runner.data, self.runner.metrics
        tallies, own = self._share_pieces(
            list_pieces(data, which),
            len(metrics.summed),
            lambda start: tally_piece(problem, params, data, start, which, metrics),
        )
        loss = math.fsum(one.loss for one in tallies) / sum(one.weight for one in tallies)
        whole = self._compute_whole_metrics(which, own) if metrics.whole else {}
        return Score(loss, metrics.combine([one.fractions for one in tallies], whole))

    def _share_pieces(
        self, starts: Sequence[int], metrics: int, tally_start: Callable[[int], Tally]
    ) -> tuple[list[Tally], dict[int, Any]]:
        """Evaluate this process's share of the pieces.

        Args:
            starts: The first examples of all pieces.
            metrics: The number of summed metrics.
            tally_start: Evaluates one piece.

        Returns:
            The tallies of all pieces, without their outputs; and the outputs of this process's pieces.
        """
        own: dict[int, Any] = {}
        table = torch.zeros((len(starts), 2 + 2 * metrics), dtype=torch.float64)
        status, message = WorkerStatus.OK, ""
        try:
            for position in range(self.group.rank, len(starts), self.group.size):
                tally = tally_start(starts[position])
                row = [tally.weight, tally.loss, *(number for one in tally.fractions for number in one)]
                table[position] = torch.tensor(row, dtype=torch.float64)
                own[starts[position]] = tally.outputs
        except TrainingFailed:  # another worker did
            raise
        except Exception as error:
            status, message = self._describe_evaluation_failure(error)
        self.group.sum_results(status, message, table, [])
        tallies = [
            Tally(int(weight), loss, tuple(map(Fraction, numbers[::2], numbers[1::2])))
            for weight, loss, *numbers in table.tolist()
        ]
        return tallies, own

    def _compute_whole_metrics(self, which: EvaluatedSet, own: dict[int, Any]) -> dict[str, float | None]:
        """Gather the outputs of all pieces; rank 0 computes the metrics, and every process gets them."""
        metrics, data = self.runner.metrics, self.runner.data
        values = torch.zeros((1, len(metrics.whole)), dtype=torch.float64)
        status, message = WorkerStatus.OK, ""
        outputs = gather_rows(self.group, own, count_examples(data, which))
        if self.group.rank == 0:
            try:
                pieces = (read_piece(data, which, start) for start in list_pieces(data, which))
                labels = join_rows([self.runner.problem.collate(piece).labels for piece in pieces])
                found = compute_whole_metrics(metrics, outputs, labels).values()
                values[0] = torch.tensor([math.nan if value is None else value for value in found])
            except Exception as error:
                status, message = self._describe_evaluation_failure(error)
        self.group.sum_results(status, message, values, [])
        shared = [None if math.isnan(value) else value for value in values[0].tolist()]
        return dict(zip([one.name for one in metrics.whole], shared, strict=True))

    def _describe_evaluation_failure(self, error: Exception) -> tuple[WorkerStatus, str]:
        where = f"the evaluation failed on worker {self.group.rank}"
        return WorkerStatus.FAILED, describe_failure_with_traceback(error, where)
