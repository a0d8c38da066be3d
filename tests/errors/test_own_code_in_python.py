"""What the Python API says of an error in a user's own code."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from answers import Fedcm
from own_code import line_of
from torch import nn

import fedcm as api
from fedcm.cli import main as cli
from fedcm.errors import UserError
from fedcm.system.faults import describe_error, find_user_code

CLIENTS = [(torch.randn(6, 3, generator=torch.Generator().manual_seed(k)), torch.arange(6) % 2) for k in range(4)]


def bad_loss(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return outputs.sum() / len(labels[100])  # in the loss


def line_here(mark: str) -> str:
    return rf"test_own_code_in_python.py, line {line_of(Path(__file__), mark)}\)"


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (bad_loss, r"^the loss bad_loss failed on 2 examples .*IndexError.*{place}"),
        (
            lambda outputs, labels: outputs,
            r"^the loss .*<lambda> must give one number, .* got a tensor of shape \(2, 2",
        ),
        (
            lambda outputs, labels: 3.0,
            r"^the loss .*<lambda> must give one number, a tensor of one element, got a float",
        ),
        (
            lambda outputs, labels: outputs.detach().sum(),
            "^the loss must have a gradient with respect to the parameters of the model Linear, and the backward pass",
        ),
    ],
)
def test_a_loss_that_fails_is_told_as_the_loss(loss: Any, said: str) -> None:
    with pytest.raises(UserError, match=said.replace("{place}", line_here("# in the " + "loss"))):
        api.train(nn.Linear(3, 2), CLIENTS, api.FedAvg(), rounds=1, loss=loss)


class Participation:
    def __init__(self, given: Any) -> None:
        self.given = given

    def cohort(self, population: int, seed: int, round: int) -> Any:
        if self.given is None:
            return np.arange(population)[[population]]  # in the cohort
        return self.given


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, "the participation Participation failed to draw the clients of round 0: IndexError.*{place}"),
        ([0, 1], "must give an array of client numbers from 0 to 3, sorted, each once, got"),
        (np.array([0.5]), "must give an array of client numbers"),
        (np.array([2, 1]), "must give an array of client numbers"),
        (np.array([2, 1], np.uint8), "must give an array of client numbers"),
        (np.array([1, 4]), "must give an array of client numbers"),
        (np.array([-1, 1]), "must give an array of client numbers"),
        (np.array([1, 1]), "must give an array of client numbers"),
    ],
)
def test_a_participation_that_draws_no_cohort_is_refused(given: Any, said: str) -> None:
    with pytest.raises(UserError, match=said.replace("{place}", line_here("# in the " + "cohort"))):
        api.train(nn.Linear(3, 2), CLIENTS, api.FedAvg(), rounds=1, participation=Participation(given))


def test_a_participation_of_ones_own_is_taken() -> None:
    _, history = api.train(
        nn.Linear(3, 2), CLIENTS, api.FedAvg(), rounds=2, participation=Participation(np.array([1, 3]))
    )
    assert [line["clients"] for line in history] == [[1, 3], [1, 3]]


def test_an_error_in_python_says_what_was_being_done() -> None:
    class Tired(nn.Linear):
        calls = 0

        def forward(self, input: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            if self.calls > 10:
                raise LookupError("tired")
            return super().forward(input)

    with pytest.raises(LookupError, match="tired") as failure:
        api.train(Tired(3, 2), CLIENTS, api.FedAvg(), rounds=9)
    notes = failure.value.__notes__
    assert notes[0] == "in the model"
    assert re.fullmatch(r"client \d failed in round \d", notes[1])


def test_an_error_of_fedcm_itself_has_no_place_of_the_users(fedcm: Fedcm, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        int("no number")

    exec(compile("def broken(): int('no number')", cli.__file__, "exec"), space := {})
    monkeypatch.setattr("fedcm.cli.terminal.tables.models_table", space["broken"])
    answer = fedcm("models")
    assert answer.code == 1
    assert answer.err.startswith("fedcm: an error inside fedcm: ValueError: invalid literal")
    assert "--debug" in answer.err
    with pytest.raises(ValueError, match="invalid literal") as caught:
        broken()
    assert find_user_code(caught.value) == (__file__, line_of(Path(__file__), 'int("no number' + '")'))
    assert "test_own_code_in_python.py, line " in describe_error(caught.value)
