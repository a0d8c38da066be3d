"""SCAFFOLD: control variates of the server (c) and the clients (c_i) correct every local step for client drift.

    client   y ← y − η_l·(g − c_i + c)                  K_i times from y = x
             option I    c_i⁺ = full gradient of the client at x
             option II   c_i⁺ = c_i − c + (x − y) / (η_l·K_i)
    report   moved = x − y,  change = c_i⁺ − c_i
    server   x ← x − s·mean(moved),  c ← c + (S/N)·mean(change)

Invariant: c is the mean of all N c_i, where c_i = 0 at first. The options agree for one step on the full batch.

Karimireddy, Kale, Mohri, Reddi, Stich & Suresh, "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning",
ICML 2020.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple, final

import torch

from fedcm.core.algorithm import Algorithm, Gradient, LocalRun, Round, Vector


class ServerState(NamedTuple):
    params: Vector  # x
    control: Vector  # c


class Broadcast(NamedTuple):
    params: Vector  # x, where the clients start
    control: Vector  # c


class ClientState(NamedTuple):
    control: Vector  # c_i


class Report(NamedTuple):
    moved: Vector  # x − y, from the start to the end of the local steps
    control_change: Vector  # c_i⁺ − c_i


@final
@dataclass(frozen=True)
class Scaffold(Algorithm[ServerState, Broadcast, ClientState, Report]):
    """SCAFFOLD: control variates; the module's docstring has the formulas."""

    option: Literal["I", "II"] = "II"  # update of c_i: I costs a pass over the data, II reuses the steps

    paper = "Karimireddy et al., ICML 2020"

    def __post_init__(self) -> None:
        if self.option not in ("I", "II"):
            raise ValueError(f'option must be "I" or "II", got {self.option!r}')

    def init_server(self, params: Vector) -> ServerState:
        return ServerState(params, torch.zeros_like(params))

    def init_client(self, params: Vector) -> ClientState:
        return ClientState(torch.zeros_like(params))

    def broadcast(self, server: ServerState) -> Broadcast:
        return Broadcast(server.params, server.control)

    def direction(self, gradient: Gradient, params: Vector, sent: Broadcast, kept: ClientState) -> Vector:
        return gradient(params) - kept.control + sent.control

    def report(self, run: LocalRun, sent: Broadcast, kept: ClientState) -> tuple[Report, ClientState]:
        from_steps = self.option == "II"
        control = run.mean_direction + kept.control - sent.control if from_steps else run.full_gradient(run.start)
        return Report(run.moved, control - kept.control), ClientState(control)

    def public_part(self, sent: Broadcast, round: Round) -> Report:
        """Return the movement by c alone."""
        return Report(round.client_lr * round.steps * sent.control, torch.zeros_like(sent.control))

    def update(self, server: ServerState, mean: Report, round: Round) -> ServerState:
        share = round.cohort_size / round.population
        control = server.control + share * mean.control_change
        return ServerState(server.params - round.server_lr * mean.moved, control)
