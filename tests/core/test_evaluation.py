"""Evaluation covers the whole test set, without dropout, and gives the same score every time."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fedcm.core.evaluation import PIECE, Score, combine_tallies, list_pieces, tally_piece
from fedcm.core.losses import squared_error
from fedcm.core.problem import Problem
from fedcm.data.dataset import Dataset, Examples
from fedcm.data.federated import ArrayData

DRAW = torch.Generator().manual_seed(0)
X = torch.randn(2 * PIECE + 137, 4, generator=DRAW)
Y = torch.randint(3, (len(X),), generator=DRAW)


def evaluate(problem: Problem, x: torch.Tensor = X, y: torch.Tensor = Y) -> Score:
    data = ArrayData(Dataset("made", Examples(x[:5], y[:5]), Examples(x, y), 3), [np.arange(5)])
    return combine_tallies(tally_piece(problem, problem.initial_params, data, start) for start in list_pieces(data))


def test_loss_and_accuracy_are_those_of_the_whole_test_set() -> None:
    torch.manual_seed(1)
    model = nn.Linear(4, 3)
    with torch.no_grad():
        outputs = model(X)
    got = evaluate(Problem(model))
    assert got.loss == pytest.approx(F.cross_entropy(outputs, Y).item(), rel=1e-6)
    assert got.accuracy == (outputs.argmax(1) == Y).sum().item() / len(Y)


def test_the_score_does_not_depend_on_the_order_of_the_pieces() -> None:
    problem = Problem(nn.Linear(4, 3))
    data = ArrayData(Dataset("made", Examples(X[:5], Y[:5]), Examples(X, Y), 3), [np.arange(5)])
    tallies = [tally_piece(problem, problem.initial_params, data, start) for start in list_pieces(data)]
    assert len(tallies) == 3
    assert combine_tallies(tallies) == combine_tallies(reversed(tallies))


def test_dropout_is_off_only_during_evaluation() -> None:
    torch.manual_seed(1)
    plain, dropped = nn.Linear(4, 3), nn.Sequential(nn.Dropout(0.9), nn.Linear(4, 3))
    dropped[1].load_state_dict(plain.state_dict())
    assert evaluate(Problem(dropped)) == evaluate(Problem(plain))
    assert dropped.training


def test_a_random_model_has_the_same_score_every_time() -> None:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x + torch.randn_like(x))

    problem = Problem(Noisy())
    first = evaluate(problem)
    torch.rand(3)
    assert evaluate(problem) == first


def test_random_numbers_differ_between_pieces() -> None:
    class Random(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return super().forward(torch.randn_like(input))

    problem = Problem(Random(4, 3))
    x, y = torch.zeros(1000, 4), torch.zeros(1000, dtype=torch.int64)
    data = ArrayData(Dataset("made", Examples(x[:5], y[:5]), Examples(x, y), 3), [np.arange(5)])
    first, second = (tally_piece(problem, problem.initial_params, data, start).loss for start in list_pieces(data))
    assert first != second


@pytest.mark.parametrize("labels", [3, 1])
def test_every_label_of_an_example_counts_in_the_accuracy(labels: int) -> None:
    """Outputs (b, classes, T) for labels (b, T)."""

    class Tagger(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return super().forward(input).unflatten(1, (2, labels))

    x = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
    y = torch.randint(2, (30, labels), generator=torch.Generator().manual_seed(1))
    model = Tagger(4, 2 * labels)
    with torch.no_grad():
        right = [int(model(x)[i, 1, t] > model(x)[i, 0, t]) == y[i, t].item() for i in range(30) for t in range(labels)]
    assert evaluate(Problem(model), x, y).accuracy == sum(right) / len(right)


def test_number_labels_have_a_loss_and_no_accuracy() -> None:
    torch.manual_seed(1)
    model = nn.Linear(4, 1)
    y = X.sum(1)
    data = ArrayData(Dataset("made", Examples(X[:5], y[:5]), Examples(X, y), None), [np.arange(5)])
    problem = Problem(model, squared_error)
    got = combine_tallies(tally_piece(problem, problem.initial_params, data, start) for start in list_pieces(data))
    with torch.no_grad():
        assert got.loss == pytest.approx(F.mse_loss(model(X)[:, 0], y).item(), rel=1e-5)
    assert got.accuracy is None
