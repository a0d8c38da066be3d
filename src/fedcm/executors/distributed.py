"""A round shared out over processes: each does its part of the cohort, the integer totals are added, all have the mean.

There is no server process: every process holds the server state and makes the same update from the same mean.
"""

from collections.abc import Callable
from typing import Any, final

import numpy as np
import torch

from fedcm.core.algorithm import Round, Vector
from fedcm.core.evaluation import Score, Tally, combine_tallies, list_pieces, tally_piece
from fedcm.core.executor import RoundResult
from fedcm.errors import Diverged, Stopped, WorkerFailed
from fedcm.executors.client_runner import ClientRunner
from fedcm.executors.client_states import ClientStates
from fedcm.executors.local import empty_round, summarise_round
from fedcm.executors.process_group import ProcessGroup, Trouble, divide_work
from fedcm.system.faults import describe_with_trace, is_disk_error


@final
class DistributedExecutor:
    def __init__(
        self,
        runner: ClientRunner,
        states: ClientStates,
        group: ProcessGroup,
        stop_requested: Callable[[], bool] = lambda: False,
        at_work_on: Callable[[int, int], None] = lambda round, client: None,
    ) -> None:
        self.runner = runner
        self.states = states
        self.group = group
        self.stop_requested = stop_requested
        self.at_work_on = at_work_on  # told before each client, so that a death can be told with it

    def run_round(self, sent: Any, cohort: np.ndarray, round: Round) -> RoundResult:
        mean, weights = self.runner.mean(sent.params, len(cohort)), self.runner.weights(cohort)
        facts = torch.zeros((len(cohort), 3), dtype=torch.float64)  # steps, loss, checksum of what the client keeps
        units, steps = self.runner.units(cohort), self.runner.steps(cohort)
        mine = divide_work([steps[unit].sum() for unit in units], self.group.size)[self.group.rank]
        self.states.prepare(cohort, round.index)
        trouble, said, client = Trouble.NONE, "", -1
        try:
            with torch.random.fork_rng(devices=[]):
                for unit in (units[k] for k in mine):
                    clients = cohort[unit].tolist()
                    client = clients[0]
                    self.at_work_on(round.index, client)
                    if self.stop_requested():
                        raise Stopped
                    rows = self.runner.run_unit(clients, sent, self.states, round, mean, weights[unit])
                    facts[unit] = torch.from_numpy(rows)
            if self.stop_requested():
                raise Stopped
        except Stopped:
            trouble = Trouble.STOPPED
        except Diverged as error:
            trouble, said = Trouble.DIVERGED, str(error)
        except WorkerFailed:  # of another
            raise
        except Exception as error:
            where = f"client {client} failed in round {round.index} on worker {self.group.rank}"
            if is_disk_error(error):
                trouble, said = Trouble.UNWRITTEN, f"{error} ({where})"
            else:
                trouble, said = Trouble.FAILED, describe_with_trace(error, where)
                if self.group.rank:
                    self.group.alarm(said)
        high_limbs = self.group.add_up(trouble, said, facts, mean.totals, mean.high_limbs)
        for limb in mean.widen(high_limbs):
            self.group.sum_(limb)
        if not len(cohort):
            return empty_round(cohort)
        self.states.commit(cohort, facts[:, 2].tolist())
        return summarise_round(mean, weights, facts.numpy(), cohort)

    def evaluate(self, params: Vector) -> Score | None:
        problem, data = self.runner.problem, self.runner.data
        if not data.test_size:
            return None
        starts = list_pieces(data)
        table = torch.zeros((len(starts), 4), dtype=torch.float64)
        trouble, said = Trouble.NONE, ""
        try:
            for position in range(self.group.rank, len(starts), self.group.size):
                done = tally_piece(problem, params, data, starts[position])
                row = [done.examples, done.loss, done.labels, -1 if done.correct is None else done.correct]
                table[position] = torch.tensor(row, dtype=torch.float64)
        except WorkerFailed:  # of another
            raise
        except Exception as error:
            trouble = Trouble.FAILED
            said = describe_with_trace(error, f"the evaluation failed on worker {self.group.rank}")
        self.group.add_up(trouble, said, table, [])
        return combine_tallies(
            Tally(int(examples), loss, int(labels), None if correct < 0 else int(correct))
            for examples, loss, labels, correct in table.tolist()
        )
