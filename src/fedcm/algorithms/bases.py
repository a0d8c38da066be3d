"""Servers that several algorithms share; each of those algorithms changes the local steps only."""

from abc import ABC

import torch

from fedcm.algorithms.messages import MeanDirection, Model, ModelAndMomentum, Moved
from fedcm.core.algorithm import Algorithm, LocalRun, Nothing, Round, Vector


class AveragingServer(Algorithm[Model, Model, Nothing, Moved], ABC):
    """The server of FedAvg: x ← x − s·mean(moved)."""

    def init_server(self, params: Vector) -> Model:
        return Model(params)

    def init_client(self, params: Vector) -> Nothing:
        return Nothing()

    def broadcast(self, server: Model) -> Model:
        return server

    def report(self, run: LocalRun, sent: Model, kept: Nothing) -> tuple[Moved, Nothing]:
        return Moved(run.moved), kept

    def update(self, server: Model, mean: Moved, round: Round) -> Model:
        return Model(server.params - round.server_lr * mean.moved)


class AveragingServerWithMomentum(Algorithm[ModelAndMomentum, Model, Nothing, Moved], ABC):
    """A server that has a momentum, which clients do not see; a subclass defines `update`."""

    def init_server(self, params: Vector) -> ModelAndMomentum:
        return ModelAndMomentum(params, torch.zeros_like(params))

    def init_client(self, params: Vector) -> Nothing:
        return Nothing()

    def broadcast(self, server: ModelAndMomentum) -> Model:
        return Model(server.params)

    def report(self, run: LocalRun, sent: Model, kept: Nothing) -> tuple[Moved, Nothing]:
        return Moved(run.moved), kept


class ClientMomentumServer(Algorithm[ModelAndMomentum, ModelAndMomentum, Nothing, MeanDirection], ABC):
    """The server of FedCM: Δ ← mean(direction), x ← x − s·η_l·K·Δ; clients get x and Δ."""

    def init_server(self, params: Vector) -> ModelAndMomentum:
        return ModelAndMomentum(params, torch.zeros_like(params))

    def init_client(self, params: Vector) -> Nothing:
        return Nothing()

    def broadcast(self, server: ModelAndMomentum) -> ModelAndMomentum:
        return server

    def report(self, run: LocalRun, sent: ModelAndMomentum, kept: Nothing) -> tuple[MeanDirection, Nothing]:
        return MeanDirection(run.mean_direction), kept

    def update(self, server: ModelAndMomentum, mean: MeanDirection, round: Round) -> ModelAndMomentum:
        step = round.server_lr * round.client_lr * round.steps
        return ModelAndMomentum(server.params - step * mean.direction, mean.direction)

    def expected_report(self, sent: ModelAndMomentum) -> MeanDirection:
        return MeanDirection(sent.momentum)
