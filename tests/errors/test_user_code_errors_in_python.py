"""Errors in user code that is called from the Python API."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cli_errors import Fedcm
from failing_code import find_line
from torch import nn

import fedcm as api
from fedcm.cli import main as cli
from fedcm.errors import UserError
from fedcm.system.error_messages import describe_error, find_user_code

CLIENTS = [(torch.randn(6, 3, generator=torch.Generator().manual_seed(k)), torch.arange(6) % 2) for k in range(4)]


def bad_loss(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return outputs.sum() / len(labels[100])  # in the loss


def make_line_pattern(mark: str) -> str:
    return rf"test_user_code_errors_in_python.py, line {find_line(Path(__file__), mark)}\)"


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (bad_loss, r"^the loss bad_loss failed on 2 examples .*IndexError.*{place}"),
        (
            lambda outputs, labels: outputs,
            r"^the loss .*<lambda> must give one number, .* got a tensor of shape \(2, 2",
        ),
        (
            lambda outputs, labels: 3.0,
            r"^the loss .*<lambda> must give one number, a tensor of one element, got 3\.0",
        ),
        (
            lambda outputs, labels: outputs.detach().sum(),
            "^the loss must have a gradient with respect to the parameters of the model Linear, and the backward pass",
        ),
    ],
)
def test_an_error_in_the_loss_names_the_loss(loss: Any, message: str) -> None:
    with pytest.raises(UserError, match=message.replace("{place}", make_line_pattern("# in the " + "loss"))):
        api.train(nn.Linear(3, 2), CLIENTS, api.FedAvg(), rounds=1, loss=loss)


class Participation:
    def __init__(self, cohort_value: Any) -> None:
        self.cohort_value = cohort_value

    def cohort(self, population: int, seed: int, round: int) -> Any:
        if self.cohort_value is None:
            return np.arange(population)[[population]]  # in the cohort
        return self.cohort_value


@pytest.mark.parametrize(
    ("cohort_value", "message"),
    [
        (None, "the participation Participation failed to draw the clients of round 0: IndexError.*{place}"),
        ([0, 1], "must return an array of client indices from 0 to 3, sorted, each once, got"),
        (np.array([0.5]), "must return an array of client indices"),
        (np.array([2, 1]), "must return an array of client indices"),
        (np.array([2, 1], np.uint8), "must return an array of client indices"),
        (np.array([1, 4]), "must return an array of client indices"),
        (np.array([-1, 1]), "must return an array of client indices"),
        (np.array([1, 1]), "must return an array of client indices"),
    ],
)
def test_a_participation_that_returns_no_valid_cohort_is_rejected(cohort_value: Any, message: str) -> None:
    with pytest.raises(UserError, match=message.replace("{place}", make_line_pattern("# in the " + "cohort"))):
        api.train(nn.Linear(3, 2), CLIENTS, api.FedAvg(), rounds=1, participation=Participation(cohort_value))


def test_a_users_participation_is_used() -> None:
    _, history = api.train(
        nn.Linear(3, 2), CLIENTS, api.FedAvg(), rounds=2, participation=Participation(np.array([1, 3]))
    )
    assert [line["clients"] for line in history] == [[1, 3], [1, 3]]


def test_an_error_in_python_has_notes_of_what_was_being_done() -> None:
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


def test_an_error_inside_fedcm_names_no_line_of_the_user(fedcm: Fedcm, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        int("no number")

    exec(compile("def broken(): int('no number')", cli.__file__, "exec"), space := {})
    monkeypatch.setattr("fedcm.cli.terminal.tables.print_models", space["broken"])
    answer = fedcm("models")
    assert answer.code == 1
    assert answer.err.startswith("fedcm: an error inside fedcm: ValueError: invalid literal")
    assert "--debug" in answer.err
    with pytest.raises(ValueError, match="invalid literal") as caught:
        broken()
    assert find_user_code(caught.value) == (__file__, find_line(Path(__file__), 'int("no number' + '")'))
    assert "test_user_code_errors_in_python.py, line " in describe_error(caught.value)
