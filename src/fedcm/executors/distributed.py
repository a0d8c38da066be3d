"""Runs a round on several processes: each runs its part of the cohort, then the integer totals are added.

There is no server process. Every process holds the server state and makes the same update from the same mean.
"""

from collections.abc import Callable
from typing import Any, final

import numpy as np
import torch

from fedcm.core.algorithm import Round, Vector
from fedcm.core.evaluation import Score, Tally, combine_tallies, list_pieces, tally_piece
from fedcm.core.executor import RoundResult
from fedcm.errors import Diverged, Stopped, TrainingFailed
from fedcm.executors.client_runner import ClientRunner
from fedcm.executors.client_states import ClientStates
from fedcm.executors.local import make_empty_result, summarise_round
from fedcm.executors.process_group import ProcessGroup, WorkerStatus, divide_work
from fedcm.system.callbacks import StopRequested
from fedcm.system.error_messages import describe_failure_with_traceback, is_disk_error


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
        mean, weights = self.runner.make_mean(sent.params, len(cohort)), self.runner.compute_weights(cohort)
        client_stats = torch.zeros((len(cohort), 3), dtype=torch.float64)  # steps, loss and checksum of each client
        stacks, steps = self.runner.split_into_stacks(cohort), self.runner.count_steps(cohort)
        own_stacks = divide_work([steps[stack].sum() for stack in stacks], self.group.size)[self.group.rank]
        self.states.prepare(cohort, round.index)
        status, message, client = WorkerStatus.OK, "", -1
        try:
            with torch.random.fork_rng(devices=[]):
                for positions in (stacks[k] for k in own_stacks):
                    clients = cohort[positions].tolist()
                    client = clients[0]
                    self.on_client(round.index, client)
                    if self.stop_requested():
                        raise Stopped
                    rows = self.runner.run_stack(clients, sent, self.states, round, mean, weights[positions])
                    client_stats[positions] = torch.from_numpy(rows)
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
        for limb in mean.allocate_high_limbs(high_limbs):
            self.group.sum_(limb)
        if not len(cohort):
            return make_empty_result(cohort)
        self.states.commit(cohort, client_stats[:, 2].tolist())
        return summarise_round(mean, weights, client_stats.numpy(), cohort)

    def evaluate(self, params: Vector) -> Score | None:
        """Evaluate parameters on the test data; every process evaluates some pieces and gets the same result."""
        problem, data = self.runner.problem, self.runner.data
        if not data.test_size:
            return None
        starts = list_pieces(data)
        table = torch.zeros((len(starts), 4), dtype=torch.float64)
        status, message = WorkerStatus.OK, ""
        try:
            for position in range(self.group.rank, len(starts), self.group.size):
                tally = tally_piece(problem, params, data, starts[position])
                row = [tally.examples, tally.loss, tally.labels, -1 if tally.correct is None else tally.correct]
                table[position] = torch.tensor(row, dtype=torch.float64)
        except TrainingFailed:  # another worker did
            raise
        except Exception as error:
            status = WorkerStatus.FAILED
            message = describe_failure_with_traceback(error, f"the evaluation failed on worker {self.group.rank}")
        self.group.sum_results(status, message, table, [])
        return combine_tallies(
            Tally(int(examples), loss, int(labels), None if correct < 0 else int(correct))
            for examples, loss, labels, correct in table.tolist()
        )
