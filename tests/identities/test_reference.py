"""The simulator and a literal transcription of each paper's pseudocode agree round by round, in float64.

Clients of unequal sizes take unequal numbers of steps, the last batch of a pass is smaller, η_l decays, every
client takes part with probability 0.35, and one round is empty.

The limit is 1e-13, absolute, on vectors of size ~1: the two differ only in the order of additions and in where they
divide, which costs some units of 1e-16 per step and grows little in 20 rounds (up to 2e-15).
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
import reference
import torch
from reference import Shape, World
from torch import Tensor, nn

from fedcm.algorithms import FedAdam, FedAvg, FedCM, FedDyn, Scaffold
from fedcm.core.algorithm import Algorithm
from fedcm.core.participation import Independent
from fedcm.core.problem import Problem
from fedcm.core.round_loop import TrainingPlan, run_rounds
from fedcm.core.schedule import Schedule
from fedcm.data.batches import LocalWork
from fedcm.data.dataset import Dataset, Examples
from fedcm.data.federated import ArrayData
from fedcm.executors.client_runner import ClientRunner
from fedcm.executors.local import LocalExecutor

LIMIT = 1e-13
ROUNDS = 20
SHAPE = Shape(inputs=5, hidden=4, classes=3)
SIZES = [3, 7, 11, 5, 16, 9]  # K_i = 2, 4, 6, 4, 8, 6
WORK = LocalWork(batch_size=4, epochs=2)
PARTICIPATION = Independent(0.35)
SEED = next(
    seed
    for seed in range(1000)
    if [len(PARTICIPATION.cohort(len(SIZES), seed, t)) for t in range(ROUNDS)].count(0) == 1
    and len(PARTICIPATION.cohort(len(SIZES), seed, 0)) > 0
)


class Row(NamedTuple):
    algorithm: Algorithm[Any, Any, Any, Any]
    transcribed: Callable[[World, Tensor, int], Iterator[dict[str, Tensor]]]
    server_fields: dict[
        str, str
    ]  # the paper's letter (− where its sign is downhill) -> the field of the server's state
    kept_field: str | None = None
    server_lr: float = 1.0
    client_lr: float = 0.3


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


def make_data() -> ArrayData:
    """Two thirds of a client's examples carry one label, which differs from client to client."""
    draw = np.random.default_rng(7)
    labels = np.concatenate(
        [np.where(draw.random(size) < 0.67, client % 3, draw.integers(0, 3, size)) for client, size in enumerate(SIZES)]
    )
    features = draw.normal(size=(len(labels), SHAPE.inputs)) + labels[:, None]
    examples = Examples(torch.from_numpy(features), torch.from_numpy(labels))
    offsets = np.cumsum([0, *SIZES])
    parts = [np.arange(start, stop) for start, stop in pairwise(offsets)]
    return ArrayData(Dataset("blobs", examples, examples, SHAPE.classes), parts, dtype=torch.float64)


def make_model() -> nn.Module:
    model = nn.Sequential(
        nn.Linear(SHAPE.inputs, SHAPE.hidden), nn.Tanh(), nn.Linear(SHAPE.hidden, SHAPE.classes)
    ).double()
    chance = torch.Generator().manual_seed(3)
    for parameter in model.parameters():
        parameter.data = 0.5 * torch.randn(parameter.shape, generator=chance, dtype=torch.float64)
    return model


def check_same_trajectory(
    row: Row, weight_decay: float = 0.0, step_decay: float = 0.0, clip: float | None = None
) -> None:
    data = make_data()
    problem = Problem(make_model(), weight_decay=weight_decay, clip=clip)
    schedule = Schedule(client_lr=row.client_lr, decay=0.97, server_lr=row.server_lr)
    executor = LocalExecutor(ClientRunner(row.algorithm, problem, data, WORK, seed=SEED, step_decay=step_decay))
    plan = TrainingPlan(ROUNDS, len(SIZES), PARTICIPATION, schedule, seed=SEED, evaluate_every=ROUNDS)

    start = torch.cat([parameter.detach().reshape(-1) for parameter in make_model().parameters()])
    world = World(
        SHAPE,
        len(SIZES),
        cohort=lambda t: PARTICIPATION.cohort(len(SIZES), SEED, t).tolist(),
        minibatches=lambda t, i: list(WORK.draw_batches(data.client(i), SEED, t, i)),
        all_data=data.client,
        client_lr=lambda t: row.client_lr * 0.97**t,
        server_lr=row.server_lr,
        weight_decay=weight_decay,
        step_decay=step_decay,
        clip=clip,
    )
    distance = 0.0
    expectation = row.transcribed(world, start, ROUNDS)
    count = 0
    for done, expected in zip(
        run_rounds(row.algorithm, executor, plan, row.algorithm.init_server(problem.initial_params)),
        expectation,
        strict=True,
    ):
        assert done.index == count
        count += 1
        for letter, name in row.server_fields.items():
            apart = float((getattr(done.server, name) - expected[letter]).abs().max())
            assert apart <= LIMIT, f"{name} after round {done.index} differs by {apart:.3g}"
        if row.kept_field is not None:
            for client, kept in world.clients.items():
                apart = float((getattr(executor.states.get(client), row.kept_field) - kept).abs().max())
                assert apart <= LIMIT, f"{row.kept_field} of client {client} after round {done.index}: {apart:.3g}"
        distance = float((expected["x"] - start).norm())
    assert count == ROUNDS
    assert 0.3 < distance < 100, f"the run must move and stay finite, it moved by {distance:.3g}"


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
    assert any(len({WORK.count_steps(SIZES[client]) for client in cohort}) > 1 for cohort in cohorts)
