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

from fedcm.core.aggregation import ReportTable
from fedcm.core.algorithm import Round
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
