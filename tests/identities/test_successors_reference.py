"""The successors of FedCM agree with a literal transcription of their papers, round by round; see `transcripts`.

SAM's authors add 1e-7 to a norm; the library treats a zero norm apart instead, so the transcription runs with ε = 0.
"""

from functools import partial

import pytest
import reference_successors as flat
import reference_successors_momentum as other
from transcripts import LIMIT, Row, check_same_trajectory

from fedcm.algorithms import (
    GHBM,
    FedACG,
    FedCMAnytime,
    FedExP,
    FedLADA,
    FedLESAM,
    FedMoSWA,
    FedMuon,
    FedSAM,
    FedSMOO,
    FedSpeed,
    FedSWA,
    MoFedSAM,
)

ROWS = {
    "FedSAM": Row(FedSAM(0.3), partial(flat.fedsam, rho=0.3, epsilon=0), {"x": "params"}),
    "MoFedSAM": Row(
        MoFedSAM(0.2, 0.3), partial(flat.mofedsam, alpha=0.2, rho=0.3, epsilon=0), {"x": "params", "delta": "momentum"}
    ),
    "FedLESAM": Row(FedLESAM(0.3), partial(flat.fedlesam, rho=0.3, memory="server", epsilon=0), {"x": "params"}),
    "FedSpeed": Row(
        FedSpeed(0.3, 0.2), partial(flat.fedspeed, lam=0.3, rho=0.2, epsilon=0), {"x": "params", "-h": "correction"}
    ),
    "FedSMOO": Row(
        FedSMOO(0.3, 0.2),
        partial(flat.fedsmoo, lam=0.3, rho=0.2, epsilon=0),
        {"x": "params", "-h": "correction", "s": "perturbation"},
    ),
    "FedACG": Row(FedACG(0.6, 0.05), partial(other.fedacg, lam=0.6, beta=0.05), {"x": "params", "-m": "momentum"}),
    "GHBM": Row(GHBM(0.5, 3), partial(other.ghbm, beta=0.5, tau=3), {"x": "params"}),
    "FedCM-Anytime": Row(
        FedCMAnytime(0.15, 2.5),
        partial(other.fedcm_anytime, alpha=0.15, k=2.5),
        {"x": "iterate", "x_bar": "params", "delta": "momentum"},
    ),
    "FedExP": Row(FedExP(0.01), partial(other.fedexp, epsilon=0.01), {"x": "params"}, client_lr=0.1),
    "FedLADA": Row(
        FedLADA(0.2, 0.5, 0.9, 0.01),
        partial(other.fedlada, alpha=0.2, beta1=0.5, beta2=0.9, epsilon=0.01),
        {"x": "params", "g_a": "momentum", "v": "second_moment"},
        client_lr=0.03,
    ),
    "FedSWA": Row(FedSWA(0.3, 1.2), partial(other.fedswa, rho=0.3, alpha=1.2), {"x": "params"}),
    "FedMoSWA": Row(
        FedMoSWA(0.3, 1.2, 0.4),
        partial(other.fedmoswa, rho=0.3, alpha=1.2, gamma=0.4),
        {"x": "params", "m": "control"},
        "control",
    ),
    "FedMuon": Row(
        FedMuon(0.5, 0.9),
        partial(other.fedmuon, beta=0.9, gamma=0.5),
        {"x": "params", "delta": "momentum"},
        client_lr=0.03,
    ),
    "FedMuon with SGD for biases": Row(
        FedMuon(0.3, 0.5, "sgd"),
        partial(other.fedmuon, beta=0.5, gamma=0.3, others="sgd"),
        {"x": "params", "delta": "momentum"},
        client_lr=0.03,
    ),
}


# one for each optional function; the stacks of the others are slow
STACKED = ("FedSMOO", "GHBM", "FedCM-Anytime", "FedLADA", "FedMuon")


@pytest.mark.parametrize("name", ROWS)
def test_the_simulator_follows_the_papers_pseudocode(name: str) -> None:
    check_same_trajectory(ROWS[name], weight_decay=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
def test_the_server_learning_rate_enters_as_in_the_transcription(name: str) -> None:
    check_same_trajectory(ROWS[name]._replace(server_lr=0.7), clip=0.5)


@pytest.mark.parametrize(
    "name", [name if name in STACKED else pytest.param(name, marks=pytest.mark.slow) for name in ROWS]
)
def test_stacked_clients_follow_it_too(name: str) -> None:
    check_same_trajectory(ROWS[name], stack=3, limit=10 * LIMIT)
