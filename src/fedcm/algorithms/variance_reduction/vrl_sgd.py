"""VRL-SGD: every client corrects its steps by how far it drifted from the mean in its last round.

    client   Δ_i ← Δ_i + (x − y_i) / (η_l·K_i)         y_i, η_l and K_i of its last round; not in its first round
             y ← y − η_l·(g − Δ_i)                     K_i times from y = x
    report   moved = x − y
    server   x ← x − mean(moved)

All clients must take part in every round and take equally many steps, and the server learning rate must be 1: the mean
of all Δ_i is 0 then, and this is SCAFFOLD, option II. With unequal K_i the limit is not the optimum; use SCAFFOLD then.

Liang, Shen, Liu, Pan, Chen & Cheng, "Variance Reduced Local SGD with Lower Communication Complexity", 2019,
arXiv:1912.12844.
"""

from dataclasses import dataclass
from typing import NamedTuple, final

import torch

from fedcm.algorithms.messages import Model, Moved
from fedcm.core.algorithm import Algorithm, Gradient, LocalRun, Round, Step, Vector


class ClientState(NamedTuple):
    correction: Vector  # Δ_i of the last round
    end: Vector  # y_i after the last round
    span: Vector  # (1,): η_l·K_i of the last round; 0 before the first round


class LocalState(NamedTuple):
    correction: Vector  # Δ_i of this round


@final
@dataclass(frozen=True)
class VRLSGD(Algorithm[Model, Model, ClientState, Moved]):
    """VRL-SGD; see the module's docstring. It has no hyperparameters."""

    paper = "Liang et al., 2019, arXiv:1912.12844"
    needs_all_clients = True
    has_server_lr = False

    def init_server(self, params: Vector) -> Model:
        return Model(params)

    def init_client(self, params: Vector) -> ClientState:
        return ClientState(torch.zeros_like(params), torch.zeros_like(params), torch.zeros_like(params[..., :1]))

    def broadcast(self, server: Model) -> Model:
        return server

    def init_local(self, full_gradient: Gradient, sent: Model, kept: ClientState) -> LocalState:
        drift = (sent.params - kept.end) / torch.where(kept.span > 0, kept.span, 1.0)
        return LocalState(kept.correction + torch.where(kept.span > 0, drift, 0.0))

    def step(
        self, gradient: Gradient, params: Vector, sent: Model, kept: ClientState, local: LocalState, step: Step
    ) -> tuple[Vector, LocalState]:
        return gradient(params) - local.correction, local

    def report(self, run: LocalRun, sent: Model, kept: ClientState) -> tuple[Moved, ClientState]:
        return Moved(run.moved), ClientState(run.local.correction, run.start - run.moved, run.client_lr * run.steps)

    def update(self, server: Model, mean: Moved, round: Round) -> Model:
        return Model(server.params - round.server_lr * mean.moved)
