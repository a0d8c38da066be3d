"""What FedYogi and FedAdagrad share: a server with a momentum and a second moment, and plain local steps."""

from abc import ABC
from typing import NamedTuple

import torch

from fedcm.algorithms.messages import Model, Moved
from fedcm.core.algorithm import Algorithm, LocalRun, Nothing, Vector


class AdaptiveState(NamedTuple):
    """The model and the moments of its movements."""

    params: Vector
    momentum: Vector
    second_moment: Vector


class AdaptiveServer(Algorithm[AdaptiveState, Model, Nothing, Moved], ABC):
    """A server that adapts its step to each coordinate; a subclass has `tau` and defines `update`."""

    tau: float

    def init_server(self, params: Vector) -> AdaptiveState:
        return AdaptiveState(params, torch.zeros_like(params), torch.full_like(params, self.tau**2))

    def init_client(self, params: Vector) -> Nothing:
        return Nothing()

    def broadcast(self, server: AdaptiveState) -> Model:
        return Model(server.params)

    def report(self, run: LocalRun, sent: Model, kept: Nothing) -> tuple[Moved, Nothing]:
        return Moved(run.moved), kept
