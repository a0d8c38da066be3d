"""The interface between the round loop and whatever runs the clients."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np

from fedcm.core.algorithm import Round, Vector
from fedcm.core.evaluation import Score


class RoundResult(NamedTuple):
    """What the cohort of a round reported."""

    mean: Any  # the algorithm's Report, averaged over the clients that reported; None if none did
    cohort_size: int  # the number of clients that reported
    steps: float  # mean local steps of these clients
    loss: float  # mean local loss of these clients
    clients: np.ndarray  # the clients that reported, sorted
    extra_metrics: Mapping[str, Any] = MappingProxyType({})  # they override the loop's own


class Executor(Protocol):
    """Runs the clients of a round and evaluates the model."""

    def run_round(self, sent: Any, cohort: np.ndarray, round: Round) -> RoundResult:
        """Run the local steps of the cohort and store the new client states: all of them, or on an error none."""
        ...

    def evaluate(self, params: Vector) -> Score | None:
        """Evaluate parameters on the test data; None if there are none."""
        ...
