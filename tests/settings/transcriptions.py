"""The pseudocode of every bundled algorithm, with the documented defaults and the fields that stand for its letters."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import reference
import reference_origins as origins
import reference_origins_stateful as stateful
import reference_successors as flat
import reference_successors_momentum as successors
import torch
from reference import World
from torch import Tensor

Rounds = Iterator[dict[str, Tensor]]


@dataclass(frozen=True)
class Transcription:
    """A method as its paper writes it."""

    run: Callable[..., Rounds]
    defaults: dict[str, Any] = field(default_factory=dict)
    letters: dict[str, str] = field(default_factory=lambda: {"x": "params"})
    renamed: dict[str, str] = field(default_factory=dict)  # a setting -> the parameter of the pseudocode

    def __call__(self, world: World, start: Tensor, rounds: int, settings: dict[str, Any]) -> Rounds:
        chosen = self.defaults | settings
        return self.run(world, start, rounds, **{self.renamed.get(key, key): value for key, value in chosen.items()})


def make_ring(nodes: int) -> Tensor:
    """Metropolis weights of a ring: a third each."""
    weights = torch.zeros(nodes, nodes, dtype=torch.float64)
    for node in range(nodes):
        for neighbour in (node - 1, node, node + 1):
            weights[node, neighbour % nodes] = 1 / 3
    return weights


def gossip(run: Callable[..., Rounds]) -> Callable[..., Rounds]:
    return lambda world, start, rounds, **settings: run(
        world, start, rounds, mixing=make_ring(world.population), **settings
    )


sam = {"epsilon": 0}  # the authors add 1e-7 to a norm, the library does not

TRANSCRIPTIONS = {
    "fedavg": Transcription(reference.fedavg),
    "fedcm": Transcription(reference.fedcm, {"alpha": 0.1}, {"x": "params", "delta": "momentum"}),
    "fedcm-anytime": Transcription(
        successors.fedcm_anytime,
        {"alpha": 0.05, "average": 8.0},
        {"x": "iterate", "x_bar": "params", "delta": "momentum"},
        renamed={"average": "k"},
    ),
    "fedadam": Transcription(
        reference.fedadam,
        {"beta1": 0.9, "beta2": 0.99, "tau": 0.01},
        {"x": "params", "-m": "momentum", "v": "second_moment"},
    ),
    "scaffold": Transcription(reference.scaffold, {"option": "II"}, {"x": "params", "c": "control"}),
    "feddyn": Transcription(reference.feddyn, {"alpha": 0.01}, {"x": "params", "h": "correction"}),
    "fedprox": Transcription(origins.fedprox, {"mu": 0.01}),
    "fednova": Transcription(origins.fednova, {"momentum": 0.0}, renamed={"momentum": "rho"}),
    "fedexp": Transcription(successors.fedexp, {"epsilon": 0.001}),
    "fedswa": Transcription(successors.fedswa, {"rho": 0.1, "alpha": 1.5}),
    "signsgd": Transcription(origins.signsgd),
    "fedavgm": Transcription(origins.fedavgm, {"beta": 0.9}),
    "slowmo": Transcription(origins.slowmo, {"beta": 0.5}),
    "fedacg": Transcription(successors.fedacg, {"decay": 0.85, "beta": 0.001}, renamed={"decay": "lam"}),
    "mimelite": Transcription(origins.mimelite, {"beta": 0.9}),
    "mime": Transcription(origins.mime, {"beta": 0.9}),
    "ghbm": Transcription(successors.ghbm, {"beta": 0.9, "tau": 10}),
    "mfl": Transcription(origins.mfl, {"gamma": 0.5}),
    "fedac": Transcription(origins.fedac, {"alpha": 5.0, "beta": 6.0, "gamma": 2.0}),
    "fedmoswa": Transcription(
        successors.fedmoswa, {"rho": 0.1, "alpha": 1.5, "gamma": 0.2}, {"x": "params", "m": "control"}
    ),
    "vrl-sgd": Transcription(partial(stateful.vrl_sgd, centred=False)),
    "feddane": Transcription(origins.feddane, {"mu": 0.01}),
    "fedpd": Transcription(stateful.fedpd, {"sigma": 10.0}),
    "fedsplit": Transcription(stateful.fedsplit, {"sigma": 10.0}),
    "fedsam": Transcription(partial(flat.fedsam, **sam), {"rho": 0.01}),
    "mofedsam": Transcription(partial(flat.mofedsam, **sam), {"alpha": 0.1, "rho": 0.1}),
    "fedlesam": Transcription(partial(flat.fedlesam, memory="server", **sam), {"rho": 0.01}),
    "fedspeed": Transcription(
        partial(flat.fedspeed, **sam), {"strength": 0.1, "rho": 0.1}, renamed={"strength": "lam"}
    ),
    "fedsmoo": Transcription(partial(flat.fedsmoo, **sam), {"strength": 0.1, "rho": 0.1}, renamed={"strength": "lam"}),
    "fedyogi": Transcription(origins.fedyogi, {"beta1": 0.9, "beta2": 0.99, "tau": 0.01}),
    "fedadagrad": Transcription(origins.fedadagrad, {"beta1": 0.0, "tau": 0.01}),
    "adaalter": Transcription(origins.local_adaalter, {"epsilon": 1.0}),
    "fedlada": Transcription(successors.fedlada, {"alpha": 0.1, "beta1": 0.9, "beta2": 0.99, "epsilon": 1e-8}),
    "d-sgd": Transcription(gossip(stateful.dsgd), {"beta": 0.0}),
    "qg-dsgdm": Transcription(gossip(stateful.qg_dsgdm), {"beta": 0.9, "mu": 0.9}),
}
