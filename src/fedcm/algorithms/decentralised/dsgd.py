"""D-SGD: every node takes local steps, with or without momentum, and then averages its parameters with its neighbours.

    node     u ← β·u + g,  y ← y − η_l·u               K_i times from y = x_i; the node keeps u
    report   y, to its neighbours
    gossip   x_i ← Σ_j W_ij·y_j

β = 0 is plain D-SGD, and on the complete graph FedAvg. Each node keeps its own momentum, which differs from node to
node if their data do; QG-DSGDm mends that.

Lian, Zhang, Zhang, Hsieh, Zhang & Liu, "Can Decentralized Algorithms Outperform Centralized Algorithms?", NeurIPS 2017.
"""

from dataclasses import dataclass
from typing import NamedTuple, final

import torch

from fedcm.algorithms.messages import Model
from fedcm.core.algorithm import Algorithm, Gradient, LocalRun, Round, Step, Vector


class NodeState(NamedTuple):
    params: Vector
    momentum: Vector


class LocalState(NamedTuple):
    momentum: Vector


@final
@dataclass(frozen=True)
class DSGD(Algorithm[Model, Model, NodeState, Model]):
    """D-SGD; see the module's docstring."""

    beta: float = 0.0  # decay of the nodes' momentum, in [0, 1)

    paper = "Lian et al., NeurIPS 2017"
    needs_all_clients = True
    has_server_lr = False

    def __post_init__(self) -> None:
        if not 0 <= self.beta < 1:
            raise ValueError(f"beta must be at least 0 and below 1, got {self.beta}; 0.9 is usual for momentum")

    def init_server(self, params: Vector) -> Model:
        return Model(params)

    def init_client(self, params: Vector) -> NodeState:
        return NodeState(params, torch.zeros_like(params))

    def broadcast(self, server: Model) -> Model:
        return server

    def start(self, sent: Model, kept: NodeState) -> Vector:
        return kept.params

    def init_local(self, full_gradient: Gradient, sent: Model, kept: NodeState) -> LocalState:
        return LocalState(kept.momentum)

    def step(
        self, gradient: Gradient, params: Vector, sent: Model, kept: NodeState, local: LocalState, step: Step
    ) -> tuple[Vector, LocalState]:
        momentum = self.beta * local.momentum + gradient(params)
        return momentum, LocalState(momentum)

    def report(self, run: LocalRun, sent: Model, kept: NodeState) -> tuple[Model, NodeState]:
        return Model(run.end), NodeState(run.end, run.local.momentum)

    def mix(self, kept: NodeState, mixed: Model, round: Round) -> NodeState:
        return NodeState(mixed.params, kept.momentum)

    def update(self, server: Model, mean: Model, round: Round) -> Model:
        return mean
