"""The seam between the training loop and whatever does the clients' work."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np

from fedcm.core.algorithm import Round, Vector
from fedcm.core.evaluation import Score


class RoundResult(NamedTuple):
    """What came back from a round's cohort."""

    mean: Any  # the algorithm's Report, each field its mean over those who reported; None when nobody did
    cohort: int  # how many reported
    steps: float  # their mean local steps
    loss: float  # the mean of their local losses
    clients: np.ndarray  # who reported, sorted
    told: Mapping[str, Any] = MappingProxyType({})  # what else is to be recorded, in place of what the loop would say


class Executor(Protocol):
    def run_round(self, sent: Any, cohort: np.ndarray, round: Round) -> RoundResult:
        """Run the cohort's local steps and take in what the clients keep: all of it, or on an error none of it."""
        ...

    def evaluate(self, params: Vector) -> Score | None:
        """On the held-out data; None when there are none."""
        ...
