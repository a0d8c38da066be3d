"""A stack of clients moves as the single clients do, up to rounding."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fedcm.algorithms import FedAdam, FedAvg, FedCM, FedDyn, Scaffold
from fedcm.core.algorithm import Algorithm
from fedcm.core.local.stacked import reject_batch_dependent_model
from fedcm.core.losses import squared_error
from fedcm.core.participation import FixedSize
from fedcm.core.problem import Problem
from fedcm.core.round_loop import FinishedRound, TrainingPlan, run_rounds
from fedcm.core.schedule import Schedule
from fedcm.data.batches import LocalWork
from fedcm.data.dataset import Dataset, Examples
from fedcm.data.federated import ArrayData
from fedcm.errors import UserError
from fedcm.executors.client_runner import ClientRunner
from fedcm.executors.local import LocalExecutor

SIZES = (3, 11, 4, 8, 1, 16, 5)  # unequal K_i, and batches of every size
DRAW = torch.Generator().manual_seed(0)
X = torch.randn(sum(SIZES), 5, generator=DRAW, dtype=torch.float64)
Y = torch.randint(3, (sum(SIZES),), generator=DRAW)
ALGORITHMS = [FedAvg(), FedCM(0.1), FedAdam(), Scaffold("I"), Scaffold("II"), FedDyn(0.1)]


def run(
    algorithm: Algorithm[Any, Any, Any, Any], stack: int, regression: bool = False, **more: Any
) -> list[FinishedRound]:
    labels = X.sum(1) if regression else Y
    dataset = Dataset("made", Examples(X, labels), Examples(X, labels), None if regression else 3)
    parts = np.split(np.arange(sum(SIZES)), np.cumsum(SIZES)[:-1])
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 1 if regression else 3)).double()
    problem = Problem(model, squared_error if regression else F.cross_entropy, weight_decay=0.01, clip=0.8)
    data = ArrayData(dataset, parts, torch.float64)
    runner = ClientRunner(algorithm, problem, data, LocalWork(4, epochs=2), seed=1, stack=stack, **more)
    plan = TrainingPlan(8, len(SIZES), FixedSize(5), Schedule(0.1, 0.9), seed=1, evaluate_every=4)
    return list(run_rounds(algorithm, LocalExecutor(runner), plan, algorithm.init_server(problem.initial_params)))


@pytest.mark.parametrize("stack", [2, 3, 100])
@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=str)
def test_a_stack_agrees_with_single_clients_up_to_rounding(
    algorithm: Algorithm[Any, Any, Any, Any], stack: int
) -> None:
    for alone, stacked in zip(run(algorithm, 1), run(algorithm, stack), strict=True):
        torch.testing.assert_close(stacked.server.params, alone.server.params, rtol=1e-11, atol=1e-12)
        assert stacked.metrics.steps == alone.metrics.steps
        assert stacked.metrics.loss == pytest.approx(alone.metrics.loss, rel=1e-10)


def test_a_stack_agrees_with_step_decay_weights_and_regression() -> None:
    settings = {"step_decay": 0.05, "weigh_by_examples": True, "regression": True}
    for alone, stacked in zip(run(FedCM(0.2), 1, **settings), run(FedCM(0.2), 3, **settings), strict=True):
        torch.testing.assert_close(stacked.server.params, alone.server.params, rtol=1e-11, atol=1e-12)


def test_the_same_stack_gives_the_same_bits() -> None:
    once, again = run(Scaffold(), 3), run(Scaffold(), 3)
    assert torch.equal(once[-1].server.params, again[-1].server.params)


def test_losses_and_models_that_cannot_be_stacked_raise() -> None:
    data = ArrayData(Dataset("made", Examples(X, Y), None, 3), [np.arange(9)], torch.float64)
    dropping = Problem(nn.Sequential(nn.Linear(5, 3), nn.Dropout()).double())
    own_loss = Problem(nn.Linear(5, 3).double(), lambda outputs, labels: outputs.mean())
    for problem, message in ((dropping, "dropout"), (own_loss, "cross-entropy")):
        with pytest.raises(UserError, match=message):
            ClientRunner(FedAvg(), problem, data, LocalWork(), seed=0, stack=2)


class Halved(nn.Linear):
    """Can halve the outputs of a batch of three examples."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        outputs = super().forward(input)
        return outputs * (0.5 if len(input) == 3 and self.halves else 1.0)

    halves = False


def make_examples(scale: float) -> Examples:
    """Return examples for clients with the first three and the first two of them."""
    return Examples(scale * X[:3].float(), Y[:3])


@pytest.mark.parametrize("scale", [0.0, 1e-9, 1.0, 1e6])
def test_a_model_that_does_not_mix_examples_is_accepted_at_every_gradient_scale(scale: float) -> None:
    reject_batch_dependent_model(Problem(nn.Linear(5, 3, bias=False)), make_examples(scale))


def test_one_client_with_a_different_step_is_enough_to_raise() -> None:
    """The client of two examples is padded to three; its gradient is small beside the other client's."""
    model, examples = Halved(5, 3, bias=False), make_examples(1.0)
    examples.features[2] *= 1e4
    reject_batch_dependent_model(Problem(model), examples)
    model.halves = True
    with pytest.raises(UserError, match="takes different steps in a stack of clients than alone"):
        reject_batch_dependent_model(Problem(model), examples)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            nn.Sequential(nn.Dropout(), nn.Linear(5, 3)),
            "^a model with dropout cannot be stacked; set engine.stack = 1$",
        ),
        (
            nn.Sequential(nn.BatchNorm1d(5, track_running_stats=False), nn.Linear(5, 3)),
            r"^a model that uses the statistics of each batch \(BatchNorm1d at '0'\) cannot be stacked",
        ),
    ],
)
def test_modules_that_cannot_be_stacked_raise_with_their_reason(model: nn.Module, message: str) -> None:
    with pytest.raises(UserError, match=message):
        reject_batch_dependent_model(Problem(model), make_examples(1.0))
