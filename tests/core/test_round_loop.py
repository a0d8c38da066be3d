"""The round loop and the local executor, on synthetic data."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedcm.algorithms import FedAvg, FedCM, Scaffold
from fedcm.algorithms.variance_reduction.scaffold import Report as ScaffoldReport
from fedcm.config.sections import EvaluationSection
from fedcm.core.algorithm import Algorithm, Round
from fedcm.core.executor import RoundResult
from fedcm.core.participation import Everyone, FixedSize, Independent, Participation
from fedcm.core.problem import Problem
from fedcm.core.round_loop import FinishedRound, TrainingPlan, collect_metrics, compute_norm, run_rounds
from fedcm.core.schedule import Schedule
from fedcm.data.batches import LocalWork
from fedcm.data.dataset import Dataset, Examples
from fedcm.data.federated import ArrayData
from fedcm.errors import Diverged
from fedcm.executors.client_runner import ClientRunner
from fedcm.executors.local import LocalExecutor

SIZES = (3, 9, 4, 8, 16)


def make_data(poison: int | None = None) -> ArrayData:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(sum(SIZES), 5, generator=draw)
    y = (x[:, 0] > 0).long()
    parts = np.split(np.arange(sum(SIZES)), np.cumsum(SIZES)[:-1])
    if poison is not None:
        x[parts[poison]] = 1e30
    return ArrayData(Dataset("made", Examples(x, y), Examples(x[:20], y[:20]), 2), parts)


def run(
    algorithm: Algorithm[Any, Any, Any, Any],
    participation: Participation,
    data: ArrayData | None = None,
    model: nn.Module | None = None,
    rounds: int = 6,
    lr: float = 0.1,
    before_training: Callable[[], object] = lambda: None,
    local_work: LocalWork | None = None,
    **executor: Any,
) -> list[FinishedRound]:
    data = data or make_data()
    torch.manual_seed(0)
    problem = Problem(model or nn.Linear(5, 2))
    local = LocalExecutor(ClientRunner(algorithm, problem, data, local_work or LocalWork(4, 2), seed=1, **executor))
    plan = TrainingPlan(rounds, data.population, participation, Schedule(lr, 0.9), seed=1, evaluate_every=4)
    before_training()
    return list(run_rounds(algorithm, local, plan, algorithm.init_server(problem.initial_params)))


def test_an_empty_round_changes_nothing_and_is_recorded() -> None:
    done = run(FedCM(0.1), Independent(0.1), rounds=20)
    empty = [k for k, d in enumerate(done) if d.metrics.cohort_size == 0]
    assert empty
    assert empty[-1] > 0
    for k in empty:
        metrics = done[k].metrics
        assert metrics.loss is None
        assert metrics.norms["update_norm"] == 0.0
        assert metrics.bytes_up == metrics.bytes_down == 0
        if k:
            assert torch.equal(done[k].server.momentum, done[k - 1].server.momentum)


def test_a_round_records_steps_bytes_norms_and_rates() -> None:
    done = run(FedCM(0.1), Everyone())
    metrics = done[2].metrics
    assert metrics.cohort_size == 5
    assert metrics.clients == [0, 1, 2, 3, 4]
    assert metrics.steps == pytest.approx(np.mean([2, 6, 2, 4, 8]))
    assert metrics.client_lr == pytest.approx(0.1 * 0.9**2)
    assert metrics.bytes_down == 5 * 2 * 12 * 4
    assert metrics.bytes_up == 5 * 1 * 12 * 4
    assert metrics.norms["momentum_norm"] == pytest.approx(done[2].server.momentum.norm().item(), rel=1e-6)
    moved = done[2].server.params - done[1].server.params
    assert metrics.norms["update_norm"] == pytest.approx(moved.norm().item(), rel=1e-6)


def test_metrics_have_these_keys_and_no_others() -> None:
    started = time.perf_counter()
    done = run(FedCM(0.1), Everyone(), rounds=4)
    runs = time.perf_counter() - started
    usual = {"round", "cohort", "clients", "steps", "client_lr", "loss", "update_norm", "momentum_norm"}
    usual |= {"bytes_down", "bytes_up", "seconds"}
    usual |= {"steps_least", "steps_most", "steps_clients"}  # because the clients have unequal numbers of examples
    assert [set(one.metrics.to_dict()) for one in done] == [usual] * 3 + [usual | {"test_loss", "test_accuracy"}]
    assert [one.metrics.round for one in done] == [one.index for one in done] == [0, 1, 2, 3]
    assert 0 < sum(one.metrics.seconds or 0 for one in done) < runs


@pytest.mark.parametrize(("cohort_size", "named"), [(1000, True), (1001, False)])
def test_clients_of_large_cohorts_are_not_recorded(cohort_size: int, named: bool) -> None:
    state = FedAvg().init_server(torch.zeros(2))
    result = RoundResult(None, cohort_size, 1.0, 0.5, np.arange(cohort_size))
    round = Round(3, 0.1, 1.0, cohort_size, cohort_size, 1.0)
    metrics = collect_metrics(round, FedAvg().broadcast(state), result, state, state)
    assert ("clients" in metrics.to_dict()) == named
    assert metrics.cohort_size == cohort_size


def test_the_server_counts_only_clients_that_reported() -> None:
    """In a federation, some clients of the cohort may not report."""

    class OneClientIsSilent:
        def run_round(self, sent: Any, cohort: np.ndarray, round: Round) -> RoundResult:
            assert round.cohort_size == len(cohort) == 5
            mean = ScaffoldReport(torch.ones(2), torch.ones(2))
            return RoundResult(mean, 4, 1.0, 0.5, cohort[1:])

        def evaluate(self, params: torch.Tensor) -> dict[str, Any]:
            return {}

    algorithm = Scaffold()
    plan = TrainingPlan(1, 10, FixedSize(5), Schedule(0.1))
    (done,) = run_rounds(algorithm, OneClientIsSilent(), plan, algorithm.init_server(torch.zeros(2)))
    assert done.server.control.tolist() == pytest.approx([0.4, 0.4]), "4 of 10 clients changed their control by 1"
    assert "test_loss" not in done.metrics.to_dict()


def test_an_error_says_which_round_failed() -> None:
    class Fails:
        def run_round(self, sent: Any, cohort: np.ndarray, round: Round) -> RoundResult:
            raise LookupError("lost")

        def evaluate(self, params: torch.Tensor) -> dict[str, Any]:
            return {}

    plan = TrainingPlan(9, 10, FixedSize(5), Schedule(0.1))
    with pytest.raises(LookupError, match="lost") as failure:
        list(run_rounds(FedAvg(), Fails(), plan, FedAvg().init_server(torch.zeros(2)), first=4))
    assert failure.value.__notes__ == ["round 4 failed"]


def test_plans_and_experiments_have_the_same_default_for_evaluations() -> None:
    assert TrainingPlan(9, 10, FixedSize(5), Schedule(0.1)).evaluate_every == EvaluationSection().every


def test_norms_of_large_vectors_do_not_overflow() -> None:
    assert compute_norm(torch.full((4,), 1e30)) == pytest.approx(2e30)


def test_evaluation_happens_when_due_and_at_the_end() -> None:
    done = run(FedAvg(), Everyone(), rounds=6)
    assert [k for k, d in enumerate(done) if "test_accuracy" in d.metrics.to_dict()] == [3, 5]
    assert [k for k, d in enumerate(done) if "test_loss" in d.metrics.to_dict()] == [3, 5]


def test_weights_by_examples() -> None:
    """The server moves by the weighted mean of the movements of single clients."""
    weights = np.array(SIZES) / sum(SIZES)
    together = run(FedAvg(), Everyone(), rounds=1, weigh_by_examples=True)[0]
    start = make_problem().initial_params
    moved = []
    for client in range(5):

        class Only:
            def cohort(self, population: int, seed: int, round: int, client: int = client) -> np.ndarray:
                return np.array([client])

        moved.append(start - run(FedAvg(), Only(), rounds=1)[0].server.params)
    expected = start - sum(w * m for w, m in zip(weights, moved, strict=True))
    torch.testing.assert_close(together.server.params, expected)
    assert together.metrics.steps == pytest.approx(np.average([2, 6, 2, 4, 8], weights=SIZES))


def make_problem() -> Problem:
    torch.manual_seed(0)
    return Problem(nn.Linear(5, 2))


def test_divergence_names_the_client_and_the_round() -> None:
    with pytest.raises(Diverged, match=r"client 3 .* in round \d"):
        run(FedAvg(), Everyone(), make_data(poison=3))


def test_an_infinite_report_names_the_client() -> None:
    """The loss of the one step is finite; only the report overflows."""
    with pytest.raises(
        Diverged, match=r"'moved' that client 0 reported must stay below 3.4e\+38, but reaches inf in round 0"
    ):
        run(FedAvg(), Everyone(), make_data(poison=0), lr=1e10, rounds=1, local_work=LocalWork(4, steps=1))


def test_dropout_is_a_function_of_seed_round_and_client() -> None:
    """Dropout does not depend on torch's global generator, and differs between rounds and clients."""

    class Spying(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(5, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.training:
                draws.append(torch.rand(1).item())
            return self.linear(x)

    draws: list[float] = []
    runs: list[list[float]] = []
    for disturbance in (0, 7):
        model = Spying()
        torch.rand(disturbance + 1)
        run(FedAvg(), FixedSize(2), model=model, rounds=3, before_training=lambda: torch.rand(disturbance + 1))  # noqa: B023
        runs.append(draws.copy())
        draws.clear()
    assert runs[0] == runs[1]
    assert len(set(runs[0])) == len(runs[0]) > 6


def test_clients_train_and_are_evaluated_on_one_thread() -> None:
    class Spying(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(5, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            threads.add((self.training, torch.get_num_threads()))
            return self.linear(x)

    threads: set[tuple[bool, int]] = set()
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        run(FedAvg(), Everyone(), model=Spying(), rounds=2)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert threads == {(True, 1), (False, 1)}


def test_the_loss_is_the_mean_of_the_clients_mean_losses() -> None:
    """At a negligible rate, every loss is that of the initial model."""
    data, problem = make_data(), make_problem()
    done = run(FedAvg(), Everyone(), rounds=1, lr=1e-12)[0]
    expected = []
    for client in range(5):
        batches = LocalWork(4, epochs=2).draw_batches(data.client(client), 1, 0, client)
        losses = [problem.loss(problem.bind(problem.initial_params)(x), y).item() for x, y in batches]
        expected.append(np.mean(losses))
    assert done.metrics.loss == pytest.approx(np.mean(expected), rel=1e-6)


def test_an_infinite_momentum_raises() -> None:
    algorithm = FedCM(0.1)
    data, problem = make_data(), make_problem()
    local = LocalExecutor(ClientRunner(algorithm, problem, data, LocalWork(4), seed=1))
    plan = TrainingPlan(1, data.population, Independent(1e-9), Schedule(0.1), seed=1)
    server = algorithm.init_server(problem.initial_params)._replace(momentum=torch.full((12,), torch.inf))
    with pytest.raises(Diverged, match="momentum_norm became inf in round 0"):
        list(run_rounds(algorithm, local, plan, server))


def test_training_restores_torchs_generator_and_threads() -> None:
    torch.manual_seed(3)
    expected = torch.rand(1)
    threads = torch.get_num_threads()
    data, problem = make_data(), make_problem()
    local = LocalExecutor(ClientRunner(FedAvg(), problem, data, LocalWork(4), seed=1))
    plan = TrainingPlan(3, data.population, Everyone(), Schedule(0.1), seed=1)
    torch.manual_seed(3)
    list(run_rounds(FedAvg(), local, plan, FedAvg().init_server(problem.initial_params)))
    assert torch.equal(torch.rand(1), expected)
    assert torch.get_num_threads() == threads


def test_weight_decay_in_the_step_is_added_to_the_direction() -> None:
    """With gradient 0 and momentum 0 a step is y ← (1 − η_l·λ)·y, whatever α is."""

    class Constant(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.zeros(len(x), 2) * self.weight

    data = make_data()
    problem = Problem(Constant())
    local = LocalExecutor(ClientRunner(FedCM(0.1), problem, data, LocalWork(100), seed=1, step_decay=0.5))
    plan = TrainingPlan(1, data.population, Everyone(), Schedule(0.1), seed=1)
    (done,) = run_rounds(FedCM(0.1), local, plan, FedCM(0.1).init_server(problem.initial_params))
    torch.testing.assert_close(done.server.params, torch.full((2,), 0.95))


def test_only_clients_that_took_part_have_a_state() -> None:
    data, problem = make_data(), make_problem()
    local = LocalExecutor(ClientRunner(Scaffold(), problem, data, LocalWork(4), seed=1))
    plan = TrainingPlan(1, data.population, FixedSize(2), Schedule(0.1), seed=1)
    (done,) = run_rounds(Scaffold(), local, plan, Scaffold().init_server(problem.initial_params))
    seen = [client for client in range(data.population) if local.states.get(client)[0].any()]
    assert seen == done.metrics.clients
