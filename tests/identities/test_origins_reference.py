"""The methods around FedCM agree with a literal transcription of their papers, round by round; see `transcripts`."""

from functools import partial

import pytest
import reference_origins as origins
import reference_origins_stateful as stateful
import torch
from transcripts import LIMIT, SEED, SIZES, Row, check_same_trajectory

from fedcm.algorithms import (
    DSGD,
    MFL,
    VRLSGD,
    AdaAlter,
    FedAc,
    FedAdagrad,
    FedAvgM,
    FedDANE,
    FedNova,
    FedPD,
    FedProx,
    FedSplit,
    FedYogi,
    Mime,
    MimeLite,
    QGDSGDm,
    SignSGD,
    SlowMo,
)
from fedcm.core.participation import Everyone
from fedcm.core.topology import ErdosRenyi, Ring, Topology, compute_mixing_matrix
from fedcm.data.batches import LocalWork

EQUAL = LocalWork(batch_size=4, epochs=1, steps=3)


def mix(topology: Topology) -> torch.Tensor:
    return torch.from_numpy(compute_mixing_matrix(topology, len(SIZES), SEED))


ROWS = {
    "FedProx": Row(FedProx(0.3), partial(origins.fedprox, mu=0.3), {"x": "params"}),
    "FedAvgM": Row(FedAvgM(0.6), partial(origins.fedavgm, beta=0.6), {"x": "params"}),
    "FedAdagrad": Row(
        FedAdagrad(0.3, 0.1), partial(origins.fedadagrad, beta1=0.3, tau=0.1), {"x": "params"}, server_lr=0.3
    ),
    "FedYogi": Row(
        FedYogi(0.5, 0.9, 0.1), partial(origins.fedyogi, beta1=0.5, beta2=0.9, tau=0.1), {"x": "params"}, server_lr=0.3
    ),
    "FedNova": Row(FedNova(), origins.fednova, {"x": "params"}),
    "FedNova with momentum": Row(FedNova(0.6), partial(origins.fednova, rho=0.6), {"x": "params"}),
    "MimeLite": Row(MimeLite(0.7), partial(origins.mimelite, beta=0.7), {"x": "params"}),
    "Mime": Row(Mime(0.7), partial(origins.mime, beta=0.7), {"x": "params"}),
    "SlowMo": Row(SlowMo(0.6), partial(origins.slowmo, beta=0.6), {"x": "params"}),
    "FedDANE": Row(FedDANE(0.2), partial(origins.feddane, mu=0.2), {"x": "params"}),
    "FedAc": Row(FedAc(3.0, 4.0, 1.5), partial(origins.fedac, alpha=3.0, beta=4.0, gamma=1.5), {"x": "params"}),
    "AdaAlter": Row(AdaAlter(1.0), partial(origins.local_adaalter, epsilon=1.0), {"x": "params", "h": "accumulator"}),
    "MFL": Row(MFL(0.5), partial(origins.mfl, gamma=0.5), {"x": "params", "d": "momentum"}),
    "signSGD": Row(SignSGD(), origins.signsgd, {"x": "params"}),
    "FedPD": Row(FedPD(2.0), partial(stateful.fedpd, sigma=2.0), {"x": "params"}),
    "FedSplit": Row(FedSplit(2.0), partial(stateful.fedsplit, sigma=2.0), {"x": "params"}, client_lr=0.1),
    "VRL-SGD": Row(VRLSGD(), partial(stateful.vrl_sgd, centred=False), {"x": "params"}, participation=Everyone()),
    "VRL-SGD with equal K": Row(VRLSGD(), stateful.vrl_sgd, {"x": "params"}, participation=Everyone(), work=EQUAL),
    "D-SGD": Row(
        DSGD(), partial(stateful.dsgd, mixing=mix(Ring())), {"x": "params"}, participation=Everyone(), topology=Ring()
    ),
    "D-SGD with momentum": Row(
        DSGD(0.7),
        partial(stateful.dsgd, mixing=mix(Ring()), beta=0.7),
        {"x": "params"},
        participation=Everyone(),
        topology=Ring(),
        client_lr=0.1,
    ),
    "QG-DSGDm": Row(
        QGDSGDm(0.7, 0.6),
        partial(stateful.qg_dsgdm, mixing=mix(ErdosRenyi(0.4)), beta=0.7, mu=0.6),
        {"x": "params"},
        participation=Everyone(),
        topology=ErdosRenyi(0.4),
        client_lr=0.1,
    ),
}
WITHOUT_SERVER_RATE = {"VRL-SGD", "VRL-SGD with equal K", "D-SGD", "D-SGD with momentum", "QG-DSGDm"}


# one for each optional function; the stacks of the others are slow
STACKED = (
    "FedNova with momentum",
    "Mime",
    "FedAc",
    "FedPD",
    "QG-DSGDm",
)


@pytest.mark.parametrize("name", ROWS)
def test_the_simulator_follows_the_papers_pseudocode(name: str) -> None:
    check_same_trajectory(ROWS[name], weight_decay=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(ROWS.keys() - WITHOUT_SERVER_RATE))
def test_the_server_learning_rate_enters_as_in_the_transcription(name: str) -> None:
    row = ROWS[name]
    check_same_trajectory(row._replace(server_lr=0.7 * row.server_lr), clip=0.5)


@pytest.mark.parametrize(
    "name", [name if name in STACKED else pytest.param(name, marks=pytest.mark.slow) for name in ROWS]
)
def test_stacked_clients_follow_it_too(name: str) -> None:
    check_same_trajectory(ROWS[name], stack=3, limit=10 * LIMIT)
