"""Identities between the methods: settings that turn one into another give the same trajectory.

Each identity has a mutant: the same pair with one setting changed, which must not agree.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import pytest
import torch
from federation import Federation, draw_cohorts, list_everyone, make_decaying_rates, make_quadratics
from identities import assert_close, check_same_trajectory

from fedcm.algorithms import (
    DSGD,
    GHBM,
    MFL,
    VRLSGD,
    FedAc,
    FedACG,
    FedAvg,
    FedAvgM,
    FedCM,
    FedCMAnytime,
    FedDyn,
    FedExP,
    FedLADA,
    FedLESAM,
    FedMoSWA,
    FedMuon,
    FedNova,
    FedPD,
    FedProx,
    FedSAM,
    FedSMOO,
    FedSpeed,
    FedSWA,
    Mime,
    MimeLite,
    MoFedSAM,
    QGDSGDm,
    Scaffold,
    SlowMo,
)

ROUNDS = 12
STEPS = [1, 3, 7, 2, 5]
COHORTS = draw_cohorts(5, ROUNDS, 0.5)
EVERYONE = list_everyone(5, ROUNDS)
DECAYING = make_decaying_rates(0.1, 0.95, ROUNDS)
CONSTANT = [0.1] * ROUNDS
ALPHA = 0.3


class Pair(NamedTuple):
    """Two federations with the same trajectory, and a change of the first that breaks it."""

    one: Federation
    other: Federation
    mutant: dict[str, Any]


def make(algorithm: Any, **settings: Any) -> Federation:
    """Unequal K_i, partial participation, decaying η_l and noisy gradients, unless the settings say otherwise."""
    usual: dict[str, Any] = {"cohorts": COHORTS, "steps": STEPS, "client_lrs": DECAYING, "noise": 1.0, "server_lr": 0.7}
    return Federation(algorithm, make_quadratics(5), **(usual | settings))


ONE_STEP = {"steps": [1] * 5, "client_lrs": CONSTANT}
FULL_BATCH = ONE_STEP | {"noise": 0.0}
EQUAL = {"steps": [4] * 5}
ALL = {"cohorts": EVERYONE, "server_lr": 1.0}

COMPLETE = torch.full((5, 5), 0.2, dtype=torch.float64)
RING = (torch.eye(5) + torch.eye(5).roll(1, 0) + torch.eye(5).roll(-1, 0)).double() / 3
SOLVED = {"steps": [400] * 5, "client_lrs": [0.3] * ROUNDS, "noise": 0.0}  # local problems are solved exactly

PAIRS = {
    "FedProx(0) is FedAvg": Pair(make(FedProx(0.0)), make(FedAvg()), {"algorithm": FedProx(0.1)}),
    "FedSAM(0) is FedAvg": Pair(make(FedSAM(0.0)), make(FedAvg()), {"algorithm": FedSAM(0.1)}),
    "FedLESAM(0) is FedAvg": Pair(make(FedLESAM(0.0)), make(FedAvg()), {"algorithm": FedLESAM(0.1)}),
    "FedExP without extrapolation is FedAvg": Pair(make(FedExP(1e9)), make(FedAvg()), {"algorithm": FedExP(1e-9)}),
    "FedSWA(1, 1) is FedAvg": Pair(make(FedSWA(1.0, 1.0)), make(FedAvg()), {"algorithm": FedSWA(0.9, 1.0)}),
    "FedAvgM(0) is FedAvg": Pair(make(FedAvgM(0.0)), make(FedAvg()), {"algorithm": FedAvgM(0.1)}),
    "FedACG(0, 0) is FedAvg": Pair(make(FedACG(0.0, 0.0)), make(FedAvg()), {"algorithm": FedACG(0.0, 0.1)}),
    "MFL(0) is FedAvg": Pair(make(MFL(0.0)), make(FedAvg()), {"algorithm": MFL(0.1)}),
    "FedAc(1, 1, 1) is FedAvg": Pair(make(FedAc(1.0, 1.0, 1.0)), make(FedAvg()), {"algorithm": FedAc(1.0, 1.0, 1.1)}),
    "GHBM(0) is FedAvg": Pair(make(GHBM(0.0, 2)), make(FedAvg()), {"algorithm": GHBM(0.1, 2)}),
    "FedNova with equal K is FedAvg": Pair(make(FedNova(), **EQUAL), make(FedAvg(), **EQUAL), {"steps": STEPS}),
    "FedCM(1) is FedNova": Pair(make(FedCM(1.0)), make(FedNova()), {"algorithm": FedCM(0.9)}),
    "FedCM-Anytime(1) without averaging is FedCM(1)": Pair(
        make(FedCMAnytime(1.0, 0.0)), make(FedCM(1.0)), {"algorithm": FedCMAnytime(0.9, 0.0)}
    ),
    "FedCM-Anytime(1) without averaging and with equal K is FedAvg": Pair(
        make(FedCMAnytime(1.0, 0.0), **EQUAL), make(FedAvg(), **EQUAL), {"algorithm": FedCMAnytime(1.0, 8.0)}
    ),
    "SlowMo is FedAvgM": Pair(
        make(SlowMo(0.5), client_lrs=CONSTANT), make(FedAvgM(0.5), client_lrs=CONSTANT), {"client_lrs": DECAYING}
    ),
    "FedCM is FedAvgM in one step": Pair(
        make(FedCM(ALPHA), **ONE_STEP, cohorts=EVERYONE, server_lr=1.0),
        make(FedAvgM(1 - ALPHA), **ONE_STEP, cohorts=EVERYONE, server_lr=ALPHA),
        {"steps": [2] * 5},
    ),
    "MimeLite is FedCM in one full-batch step": Pair(
        make(MimeLite(1 - ALPHA), **FULL_BATCH), make(FedCM(ALPHA), **FULL_BATCH), {"noise": 1.0}
    ),
    "Mime is FedCM in one full-batch step": Pair(
        make(Mime(1 - ALPHA), **FULL_BATCH), make(FedCM(ALPHA), **FULL_BATCH), {"algorithm": Mime(0.5)}
    ),
    "Mime is MimeLite in one full-batch step": Pair(
        make(Mime(0.8), **FULL_BATCH), make(MimeLite(0.8), **FULL_BATCH), {"noise": 1.0}
    ),
    "GHBM(1) is FedCM": Pair(
        make(GHBM(1 - ALPHA, 1), **EQUAL, client_lrs=[0.1 * ALPHA] * ROUNDS, server_lr=1.0),
        make(FedCM(ALPHA), **EQUAL, client_lrs=CONSTANT, server_lr=1.0),
        {"algorithm": GHBM(1 - ALPHA, 2)},
    ),
    "MoFedSAM(1) with equal K is FedSAM": Pair(
        make(MoFedSAM(1.0, 0.2), **EQUAL), make(FedSAM(0.2), **EQUAL), {"algorithm": MoFedSAM(0.9, 0.2)}
    ),
    "MimeLite(0) is FedAvg": Pair(make(MimeLite(0.0)), make(FedAvg()), {"algorithm": MimeLite(0.1)}),
    "MoFedSAM(0) is FedCM": Pair(make(MoFedSAM(ALPHA, 0.0)), make(FedCM(ALPHA)), {"algorithm": MoFedSAM(ALPHA, 0.1)}),
    "FedLADA with v = 1 is FedCM": Pair(
        make(FedLADA(ALPHA, 0.0, 1.0, 1.0)), make(FedCM(ALPHA)), {"algorithm": FedLADA(ALPHA, 0.1, 1.0, 1.0)}
    ),
    "FedMuon without matrices is FedCM": Pair(
        make(FedMuon(1 - ALPHA, 0.0, "sgd"), **EQUAL, server_lr=1.0),
        make(FedCM(ALPHA), **EQUAL, server_lr=1.0),
        {"algorithm": FedMuon(1 - ALPHA, 0.0, "adam")},
    ),
    "VRL-SGD is SCAFFOLD": Pair(make(VRLSGD(), **ALL, **EQUAL), make(Scaffold("II"), **ALL, **EQUAL), {"steps": STEPS}),
    "FedMoSWA(1, 1, 1) is SCAFFOLD": Pair(
        make(FedMoSWA(1.0, 1.0, 1.0), cohorts=EVERYONE),
        make(Scaffold("II"), cohorts=EVERYONE),
        {"algorithm": FedMoSWA(1.0, 1.0, 0.9)},
    ),
    "FedPD with exact local solutions is FedDyn": Pair(
        make(FedPD(2.0), **ALL, **SOLVED), make(FedDyn(0.5), **ALL, **SOLVED), {"steps": [3] * 5}
    ),
    "FedPD with exact local solutions is FedSpeed(0)": Pair(
        make(FedPD(2.0), **ALL, **SOLVED), make(FedSpeed(0.5, 0.0), **ALL, **SOLVED), {"algorithm": FedPD(3.0)}
    ),
    "FedSpeed(0) is FedDyn": Pair(make(FedSpeed(0.5, 0.0)), make(FedDyn(0.5)), {"algorithm": FedSpeed(0.5, 0.1)}),
    "FedSMOO(0) is FedDyn": Pair(make(FedSMOO(0.5, 0.0)), make(FedDyn(0.5)), {"algorithm": FedSMOO(0.5, 0.1)}),
    "D-SGD on the complete graph is FedAvg": Pair(
        make(DSGD(), **ALL, mixing=COMPLETE), make(FedAvg(), **ALL), {"algorithm": DSGD(0.1)}
    ),
    "QG-DSGDm(0) is D-SGD": Pair(
        make(QGDSGDm(0.0, 0.5), **ALL, mixing=RING), make(DSGD(), **ALL, mixing=RING), {"algorithm": QGDSGDm(0.1, 0.5)}
    ),
    "QG-DSGDm on the complete graph is FedCM": Pair(
        make(QGDSGDm(1 - ALPHA, 0.0), **ALL, **EQUAL, mixing=COMPLETE, client_lrs=[0.1 * ALPHA] * ROUNDS),
        make(FedCM(ALPHA), **ALL, **EQUAL, client_lrs=CONSTANT),
        {"algorithm": QGDSGDm(1 - ALPHA, 0.1)},
    ),
}


def to_dtype(federation: Federation, dtype: torch.dtype) -> Federation:
    return replace(federation, clients=make_quadratics(5, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("name", PAIRS)
def test_the_trajectories_agree(name: str, dtype: torch.dtype) -> None:
    check_same_trajectory(to_dtype(PAIRS[name].one, dtype), to_dtype(PAIRS[name].other, dtype))


@pytest.mark.parametrize("name", PAIRS)
def test_a_changed_setting_breaks_the_identity(name: str) -> None:
    one, other, mutant = PAIRS[name]
    with pytest.raises(AssertionError, match="differs by"):
        check_same_trajectory(
            replace(one, **mutant), replace(other, **{k: v for k, v in mutant.items() if k != "algorithm"})
        )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_acg_without_a_proximal_term_is_nesterov_at_the_server(dtype: torch.dtype) -> None:
    check_nesterov(to_dtype(make(FedACG(0.6, 0.0), cohorts=EVERYONE), dtype))
    for mutant in (FedACG(0.6, 0.1), FedACG(0.5, 0.0)):
        with pytest.raises(AssertionError, match="differs by"):
            check_nesterov(to_dtype(make(mutant, cohorts=EVERYONE), dtype))


def check_nesterov(federation: Federation) -> None:
    """z is the model that is sent: x ← z − s·G(z), z ← x + λ·(x − x_old)."""
    plain = replace(federation, algorithm=FedAvg())
    x = z = federation.start()
    for past in federation.run():
        alone = replace(plain, cohorts=[past_cohort(past)], client_lrs=[past.round.client_lr])
        moved = compute_moved(alone, z, past.round.index)
        x, old = z - 0.7 * moved, x
        z = x + 0.6 * (x - old)
        assert_close(past.after.params, x, f"after round {past.round.index}")


def past_cohort(past: Any) -> list[int]:
    return list(past.locals)


def compute_moved(federation: Federation, start: torch.Tensor, round: int) -> torch.Tensor:
    """The mean movement of plain local steps from `start`, with the minibatches of that round."""
    moved = []
    for client in federation.cohorts[0]:
        y = start
        for step in range(federation.steps[client]):
            y = y - federation.client_lrs[0] * federation.minibatch(client, round, step)(y)
        moved.append(start - y)
    return torch.stack(moved).mean(0)
