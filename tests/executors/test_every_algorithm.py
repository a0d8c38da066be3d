"""Every bundled algorithm has the same bits in one process, on two workers, with states on disk, and in stacks."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.distributed import FileStore  # pyright: ignore[reportPrivateImportUsage]
from torch.multiprocessing.spawn import spawn

from fedcm.algorithms import ALGORITHMS
from fedcm.core.algorithm import has_survey, is_decentralised
from fedcm.core.participation import Everyone, FixedSize
from fedcm.core.problem import Problem
from fedcm.core.round_loop import FinishedRound, TrainingPlan, run_rounds
from fedcm.core.schedule import Schedule
from fedcm.core.topology import Ring
from fedcm.data.batches import LocalWork
from fedcm.data.dataset import Dataset, Examples
from fedcm.data.federated import ArrayData
from fedcm.executors.client_runner import ClientRunner
from fedcm.executors.client_state_file import ClientStatesInFile
from fedcm.executors.distributed import DistributedExecutor
from fedcm.executors.local import LocalExecutor
from fedcm.executors.process_group import ProcessGroup

ROUNDS, SIZES, WORKERS = 3, [6, 9, 4, 11, 7], 2


def make_runner(name: str, stack: int = 1) -> ClientRunner:
    draw = torch.Generator().manual_seed(1)
    features = torch.randn(sum(SIZES), 5, generator=draw)
    labels = torch.randint(3, (sum(SIZES),), generator=draw)
    dataset = Dataset("made", Examples(features, labels), None, 3)
    data = ArrayData(dataset, np.split(np.arange(sum(SIZES)), np.cumsum(SIZES)[:-1]))
    with torch.random.fork_rng():
        torch.manual_seed(2)
        model = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))
    return ClientRunner(ALGORITHMS[name](), Problem(model), data, LocalWork(4, epochs=1), seed=3, stack=stack)


def make_plan(runner: ClientRunner) -> TrainingPlan:
    everyone = runner.algorithm.needs_all_clients
    topology = Ring() if is_decentralised(runner.algorithm) else None
    participation = Everyone() if everyone else FixedSize(3)
    return TrainingPlan(ROUNDS, len(SIZES), participation, Schedule(0.05, 0.9), seed=3, topology=topology)


def run(executor: Any, runner: ClientRunner) -> Iterator[FinishedRound]:
    server = runner.algorithm.init_server(runner.problem.initial_params)
    return run_rounds(runner.algorithm, executor, make_plan(runner), server)


def digest(rounds: Iterator[FinishedRound], states: Any) -> str:
    """A hash of the bits of every server state and of all client states at the end."""
    made = hashlib.sha256()
    for finished in rounds:
        for field in finished.server:
            made.update(field.numpy().tobytes())
    for client in range(len(SIZES)):
        for field in states.get(client):
            made.update(field.contiguous().numpy().tobytes())
    return made.hexdigest()


def run_locally(name: str, folder: Path, stack: int = 1) -> str:
    runner = make_runner(name, stack)
    states = ClientStatesInFile(runner.initial_state, folder / f"{name}-{stack}", 1)
    try:
        return digest(run(LocalExecutor(runner, states), runner), states)
    finally:
        states.close()


def run_worker(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    group = ProcessGroup(rank, WORKERS, FileStore(str(folder / "store"), WORKERS))
    results = {}
    for name in ALGORITHMS:
        runner = make_runner(name)
        path = folder / f"{name}-workers"
        states = ClientStatesInFile(runner.initial_state, path, 1)
        results[name] = digest(run(DistributedExecutor(runner, states, group), runner), states)
        group.agree()  # before a worker closes the file that the other may read
        states.close()
    (folder / f"results-{rank}.json").write_text(json.dumps(results))
    group.close()


@pytest.fixture(scope="module")
def on_workers(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    folder = tmp_path_factory.mktemp("workers")
    spawn(run_worker, (folder,), nprocs=WORKERS)
    return [json.loads((folder / f"results-{rank}.json").read_text()) for rank in range(WORKERS)]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_two_workers_give_the_bits_of_one_process(name: str, on_workers: list[dict[str, str]], tmp_path: Path) -> None:
    assert [results[name] for results in on_workers] == [run_locally(name, tmp_path)] * WORKERS


@pytest.mark.parametrize("name", ALGORITHMS)
def test_states_in_memory_give_the_bits_of_states_on_disk(name: str, tmp_path: Path) -> None:
    runner = make_runner(name)
    executor = LocalExecutor(runner)
    assert digest(run(executor, runner), executor.states) == run_locally(name, tmp_path)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_stack_moves_as_its_clients_do_alone(name: str) -> None:
    alone, stacked = make_runner(name), make_runner(name, stack=2)
    pairs = zip(run(LocalExecutor(alone), alone), run(LocalExecutor(stacked), stacked), strict=True)
    scale = 20 if name == "signsgd" else 1  # rounding can flip a sign where a coordinate hardly moves
    for one, other in pairs:
        close = torch.isclose(one.server.params, other.server.params, rtol=1e-3, atol=1e-5)
        assert int((~close).sum()) <= scale - 1, f"round {one.index}"


@pytest.mark.parametrize(
    "name", [name for name, kind in ALGORITHMS.items() if kind.survey is not ALGORITHMS["fedavg"].survey]
)
def test_the_first_exchange_counts_in_the_traffic(name: str) -> None:
    runner = make_runner(name)
    assert has_survey(runner.algorithm)
    finished = next(run(LocalExecutor(runner), runner))
    vector = 4 * runner.problem.size
    assert finished.metrics.bytes_up == 3 * 2 * vector  # three clients: a survey and a report each


def measure_distance(nodes: list[Tensor]) -> float:
    centre = torch.stack(nodes).double().mean(0)
    return float(torch.stack([(node.double() - centre).square().sum() for node in nodes]).mean().sqrt())


@pytest.mark.parametrize("name", ["d-sgd", "qg-dsgdm"])
def test_the_consensus_distance_is_the_spread_of_the_nodes(name: str) -> None:
    runner = make_runner(name)
    executor, metrics = LocalExecutor(runner), None
    for finished in run(executor, runner):
        metrics = finished.metrics
        nodes = [executor.states.get(client).params for client in range(len(SIZES))]
        distance = finished.metrics.extra["consensus_distance"]
        assert distance == pytest.approx(measure_distance(nodes), rel=1e-4)
        assert distance > 0
        torch.testing.assert_close(finished.server.params, torch.stack(nodes).mean(0), rtol=1e-4, atol=1e-6)
    assert metrics is not None
    assert metrics.bytes_up == 2 * len(SIZES) * 4 * runner.problem.size  # two neighbours each on a ring
    assert metrics.bytes_down == 0
