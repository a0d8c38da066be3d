"""The interface between the round loop and whatever runs the clients."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from fedcm.core.algorithm import Round, Vector
from fedcm.core.evaluation import Score
from fedcm.core.scoring.over_clients import ClientScores


class RoundResult(NamedTuple):
    """What the cohort of a round reported."""

    mean: Any  # the algorithm's Report, averaged over the clients that reported; None if none did, unless it is private
    cohort_size: int  # the number of clients that reported
    steps: float  # mean local steps of these clients
    loss: float  # mean local loss of these clients
    clients: np.ndarray  # the clients that reported, sorted
    extra_metrics: Mapping[str, Any] = MappingProxyType({})  # they override the loop's own
    effective_steps: float | None = None  # mean Σ f_k of these clients; None if all factors are 1
    expected_size: float | None = None  # what the sum was divided by, if not the number of reports

    @property
    def update_size(self) -> float:
        """The number of clients that the mean is over, for `Round.cohort_size`."""
        return self.cohort_size if self.expected_size is None else self.expected_size

    @property
    def update_steps(self) -> float:
        """The mean of `LocalRun.steps` over these clients, for `Round.steps`."""
        return self.steps if self.effective_steps is None else self.effective_steps


class Executor(Protocol):
    """Runs the clients of a round and evaluates the model."""

    def run_round(self, sent: Any, cohort: np.ndarray, round: Round) -> RoundResult:
        """Run the local steps of the cohort and store the new client states: all of them, or on an error none."""
        ...

    def evaluate(self, params: Vector) -> Mapping[str, Score]:
        """Evaluate parameters on the test data and the validation data: by set, without those that are empty."""
        ...


@runtime_checkable
class SurveyExecutor(Protocol):
    """An executor that can also run a first exchange, for algorithms with a survey."""

    def run_survey(self, params: Vector, cohort: np.ndarray, round: Round) -> Any:
        """Return the mean of the cohort's surveys, if the algorithm has any; the cohort is not empty."""
        ...


@runtime_checkable
class ClientTestExecutor(Protocol):
    """An executor that can also evaluate a model on the test data of each client."""

    def evaluate_clients(self, params: Vector, round: Round) -> ClientScores:
        """Evaluate parameters on the test data of all clients that have some."""
        ...


@runtime_checkable
class GossipExecutor(Protocol):
    """An executor that can also run rounds without a server, for decentralised algorithms."""

    def run_gossip(self, sent: Any, cohort: np.ndarray, round: Round, mixing: np.ndarray) -> RoundResult:
        """Run the local steps and the gossip of all nodes, for a decentralised algorithm.

        Args:
            sent: The algorithm's broadcast; only its shape is used.
            cohort: All nodes.
            round: The round.
            mixing: The weights of the graph, (nodes, nodes).
        """
        ...
