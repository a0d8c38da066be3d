"""Rounds without a server: every node takes its local steps, then averages its report with those of its neighbours.

The state of a node is its client state. All reports of a round are gathered in a table, in which every row is computed
by one worker, so the weighted means have the same bits on any number of workers.
"""

import math
from collections.abc import Sequence
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from fedcm.core.algorithm import Round
from fedcm.core.exact_mean import ExactMean
from fedcm.core.executor import RoundResult
from fedcm.core.round_loop import count_bytes
from fedcm.executors.client_runner import ClientRunner
from fedcm.executors.client_states import ClientStates


@final
class PendingStates:
    """Client states after the local steps of a round and before its gossip, for the nodes of this process."""

    def __init__(self, states: ClientStates) -> None:
        self._states = states
        self._pending: dict[int, tuple] = {}

    def prepare(self, cohort: np.ndarray, round: int) -> None:
        """Do nothing: nothing is stored before the gossip."""

    def list_clients(self) -> list[int]:
        """Return the clients whose state is not the initial one."""
        return self._states.list_clients()

    def get(self, client: int) -> Any:
        """Return the state of a client before the round."""
        return self._states.get(client)

    def put(self, client: int, kept: tuple) -> int:
        """Keep the state of a client for its gossip."""
        self._pending[client] = kept
        return 0

    def commit(self, cohort: np.ndarray, checksums: list[float]) -> None:
        """Do nothing: nothing is stored before the gossip."""

    def take(self, client: int) -> Any:
        """Return the state of a client after its local steps, and forget it."""
        return self._pending.pop(client)


@final
class ReportTable:
    """All reports of a round, one row for each node, and their exact mean."""

    def __init__(self, mean: ExactMean[Any], nodes: int) -> None:
        self.mean = mean
        self._rows = [field.new_zeros((nodes, field.numel())) for field in mean.template]

    @property
    def totals(self) -> list[Tensor]:
        """The integers of the mean that workers add."""
        return self.mean.totals

    @property
    def bits(self) -> list[Tensor]:
        """The rows as integers. A row is 0 in all workers but one, so adding them over the workers is exact."""
        return [rows.view(torch.int32 if rows.element_size() == 4 else torch.int64) for rows in self._rows]

    @property
    def high_limbs(self) -> int:
        """See `ExactMean`."""
        return self.mean.high_limbs

    def allocate_high_limbs(self, limbs: int) -> list[Tensor]:
        """See `ExactMean`."""
        return self.mean.allocate_high_limbs(limbs)

    def add_stack(self, clients: Sequence[int], report: Any, weights: Sequence[float]) -> None:
        """Add the reports of a stack of nodes."""
        self.mean.add_stack(clients, report, weights)
        for rows, field in zip(self._rows, report, strict=True):
            rows[list(clients)] = field.reshape(len(clients), -1)

    def mix(self, weights: np.ndarray) -> Any:
        """Return the mean of the reports with these weights, one for each node."""
        neighbours = np.flatnonzero(weights)
        fields = []
        for rows, like in zip(self._rows, self.mean.template, strict=True):
            own = torch.from_numpy(weights[neighbours]).to(rows)
            fields.append((own @ rows[neighbours]).view(like.shape))
        return type(self.mean.template)(*fields)


def mix_nodes(
    runner: ClientRunner,
    clients: Sequence[int],
    table: ReportTable,
    mixing: np.ndarray,
    pending: PendingStates,
    states: ClientStates,
    round: Round,
    centre: Tensor,
) -> np.ndarray:
    """Average the reports of some nodes with those of their neighbours and put the new states.

    Args:
        runner: Has the algorithm.
        clients: The nodes.
        table: The reports of all nodes.
        mixing: The weights of the graph, (nodes, nodes).
        pending: The states of the nodes after their local steps.
        states: Stores the new states.
        round: The round.
        centre: The mean of the parameters of all nodes.

    Returns:
        One row for each node: 0, its squared distance from the centre, and the checksum of its state.
    """
    rows = []
    for client in clients:
        with torch.no_grad():
            kept = runner.algorithm.mix(pending.take(client), table.mix(mixing[client]), round)
        distance = torch.linalg.vector_norm(kept.params - centre, dtype=torch.float64).item()
        rows.append([0.0, distance**2, states.put(client, kept)])
    return np.array(rows, dtype=np.float64)


def add_gossip_metrics(result: RoundResult, mixed: np.ndarray, mixing: np.ndarray) -> RoundResult:
    """Return the result with the consensus distance, √(mean ‖x_i − x̄‖²), and the traffic between neighbours.

    Args:
        result: The result of the round.
        mixed: The rows of `mix_nodes` for all nodes.
        mixing: The weights of the graph.
    """
    messages = int(np.count_nonzero(mixing - np.diag(np.diag(mixing))))  # one for each direction of an edge
    metrics = {"bytes_down": 0, "bytes_up": messages * count_bytes(result.mean)}
    distance = math.sqrt(math.fsum(mixed[:, 1]) / len(mixed))
    return result._replace(extra_metrics={**result.extra_metrics, **metrics, "consensus_distance": distance})
