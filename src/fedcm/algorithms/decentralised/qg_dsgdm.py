"""QG-DSGDm: decentralised SGD with a momentum that follows the movement of the whole network, not of one node.

    node     y ← y − η_l·(g + β·m_i)                   K_i times from y = x_i; m_i is fixed during the round
    report   y, to its neighbours
    gossip   x_i⁺ = Σ_j W_ij·y_j
             m_i ← μ·m_i + (1−μ)·(x_i − x_i⁺) / (η_l·K_i)       m_i starts at 0
             x_i ← x_i⁺

On the complete graph with equal K_i, constant η_l and μ = 0, this is FedCM(α = 1−β) with the rate η_l/α. The paper has
one step per round; here m_i stays fixed during the K_i steps.

Lin, Karimireddy, Stich & Jaggi, "Quasi-Global Momentum: Accelerating Decentralized Deep Learning on Heterogeneous
Data", ICML 2021, arXiv:2102.04761.
"""

from dataclasses import dataclass
from typing import NamedTuple, final

import torch

from fedcm.algorithms.messages import Model
from fedcm.core.algorithm import Algorithm, Gradient, LocalRun, Round, Vector


class NodeState(NamedTuple):
    params: Vector
    momentum: Vector
    span: Vector  # (1,): η_l·K_i of the last round


@final
@dataclass(frozen=True)
class QGDSGDm(Algorithm[Model, Model, NodeState, Model]):
    """QG-DSGDm; see the module's docstring."""

    beta: float = 0.9  # weight of the momentum in a step, in [0, 1)
    mu: float = 0.9  # decay of the momentum, in [0, 1)

    paper = "Lin et al., ICML 2021, arXiv:2102.04761"
    needs_all_clients = True
    has_server_lr = False

    def __post_init__(self) -> None:
        if not (0 <= self.beta < 1 and 0 <= self.mu < 1):
            raise ValueError(f"beta and mu must be at least 0 and below 1, got {self}")

    def init_server(self, params: Vector) -> Model:
        return Model(params)

    def init_client(self, params: Vector) -> NodeState:
        return NodeState(params, torch.zeros_like(params), torch.zeros_like(params[..., :1]))

    def broadcast(self, server: Model) -> Model:
        return server

    def start(self, sent: Model, kept: NodeState) -> Vector:
        return kept.params

    def direction(self, gradient: Gradient, params: Vector, sent: Model, kept: NodeState) -> Vector:
        return gradient(params) + self.beta * kept.momentum

    def report(self, run: LocalRun, sent: Model, kept: NodeState) -> tuple[Model, NodeState]:
        return Model(run.end), kept._replace(span=run.client_lr * run.steps)

    def mix(self, kept: NodeState, mixed: Model, round: Round) -> NodeState:
        movement = (kept.params - mixed.params) / kept.span
        return NodeState(mixed.params, torch.lerp(movement, kept.momentum, self.mu), kept.span)

    def update(self, server: Model, mean: Model, round: Round) -> Model:
        return mean
