"""The simulator and a literal transcription of each paper's pseudocode agree round by round; see `transcripts`."""

import pytest
import reference
from transcripts import PARTICIPATION, ROUNDS, SEED, SIZES, WORK, Row, check_same_trajectory

from fedcm.algorithms import FedAdam, FedAvg, FedCM, FedDyn, Scaffold

ROWS = {
    "FedAvg": Row(FedAvg(), reference.fedavg, {"x": "params"}),
    "FedAvg, server rate 0.7": Row(FedAvg(), reference.fedavg, {"x": "params"}, server_lr=0.7),
    "FedCM": Row(FedCM(0.1), lambda *a: reference.fedcm(*a, alpha=0.1), {"x": "params", "delta": "momentum"}),
    "FedCM, server rate 0.7": Row(
        FedCM(0.3), lambda *a: reference.fedcm(*a, alpha=0.3), {"x": "params", "delta": "momentum"}, server_lr=0.7
    ),
    "FedAdam": Row(
        FedAdam(0.9, 0.99, 0.01),
        lambda *a: reference.fedadam(*a, beta1=0.9, beta2=0.99, tau=0.01),
        {"x": "params", "-m": "momentum", "v": "second_moment"},
        server_lr=0.1,
    ),
    "SCAFFOLD I": Row(
        Scaffold("I"), lambda *a: reference.scaffold(*a, option="I"), {"x": "params", "c": "control"}, "control"
    ),
    "SCAFFOLD II": Row(
        Scaffold("II"), lambda *a: reference.scaffold(*a, option="II"), {"x": "params", "c": "control"}, "control"
    ),
    "SCAFFOLD II, server rate 0.7": Row(
        Scaffold("II"), lambda *a: reference.scaffold(*a, option="II"), {"x": "params", "c": "control"}, "control", 0.7
    ),
    "FedDyn": Row(
        FedDyn(0.3), lambda *a: reference.feddyn(*a, alpha=0.3), {"x": "params", "h": "correction"}, "correction"
    ),
    "FedDyn, server rate 0.7": Row(
        FedDyn(0.3), lambda *a: reference.feddyn(*a, alpha=0.3), {"x": "params", "h": "correction"}, "correction", 0.7
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_the_simulator_follows_the_papers_pseudocode(name: str) -> None:
    check_same_trajectory(ROWS[name], weight_decay=0.01)


@pytest.mark.parametrize("name", ["FedAvg", "FedCM", "SCAFFOLD I", "FedDyn"])
def test_the_simulator_follows_it_with_clipping(name: str) -> None:
    check_same_trajectory(ROWS[name], weight_decay=0.01, clip=0.5)


@pytest.mark.parametrize("name", ["FedAvg", "FedCM", "SCAFFOLD II", "FedDyn"])
def test_the_simulator_follows_it_with_weight_decay_in_the_step(name: str) -> None:
    check_same_trajectory(ROWS[name], step_decay=0.01)


def test_the_schedule_covers_the_intended_cases() -> None:
    cohorts = [PARTICIPATION.cohort(len(SIZES), SEED, t).tolist() for t in range(ROUNDS)]
    assert sum(not cohort for cohort in cohorts) == 1
    assert {client for cohort in cohorts for client in cohort} == set(range(len(SIZES)))
    assert any(len({WORK.count_steps(SIZES[client], 0, 0, client) for client in cohort}) > 1 for cohort in cohorts)
