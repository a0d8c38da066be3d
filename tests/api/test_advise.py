"""`fedcm.advise`: the advice of the command, for experiments of every form."""

import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from scenes import Answer

import fedcm as api

CLIENTS = [(torch.linspace(-1, 1, 8)[:, None] + k / 10, torch.arange(8) // 4) for k in range(4)]


def test_advice_equals_that_of_the_command(
    fedcm: Callable[..., Answer], experiment: Callable[..., Path], tmp_path: Path
) -> None:
    path = experiment()
    before = set(tmp_path.iterdir())
    advice = api.advise(path, overrides={"client.lr": 0.2}, rounds=2)
    answer = fedcm("advise", path, "--rounds", 2, "--set", "client.lr=0.2", "--json")
    assert answer.code == 0, answer.err
    printed, returned = json.loads(answer.out), json.loads(json.dumps(advice.to_table()))
    del printed["probe"]["found"]["seconds"], returned["probe"]["found"]["seconds"]
    assert printed == returned
    assert list(printed["probe"]) == ["rounds", "start", "trials", "found", "smoothness", "judged_on"]
    assert set(tmp_path.iterdir()) == before


def test_an_experiment_of_another_algorithm_is_probed_with_fedcm(experiment: Callable[..., Path]) -> None:
    path = experiment(algorithm={"name": "fedavg"})
    advice = api.advise(api.load_experiment(path), rounds=2)
    assert advice.profile.alpha is None
    assert advice.probe.trials == api.advise(path, rounds=2).probe.trials
    assert advice.probe.trials == api.advise(experiment(), rounds=2).probe.trials


def test_an_experiment_of_python_objects_gets_advice() -> None:
    experiment = api.make_experiment(torch.nn.Linear(1, 2), CLIENTS, api.FedCM(alpha=0.2), rounds=20, name="mine")
    advice = api.advise(experiment, seconds=0.001)
    assert (advice.probe.rounds, advice.profile.alpha) == (10, 0.2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rounds": 0}, "rounds must be a whole number, at least 1, got 0"),
        ({"seconds": -1}, "seconds must be a number above 0, got -1"),
        ({"overrides": {"rounds": 3}}, "overrides apply to a file or a name"),
    ],
)
def test_bad_arguments_raise_one_sentence(
    experiment: Callable[..., Path], arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(api.UserError, match=message):
        api.advise(api.load_experiment(experiment()), **arguments)


def test_a_stop_request_and_ctrl_c_end_the_probe(experiment: Callable[..., Path]) -> None:
    path = experiment()
    with pytest.raises(api.Stopped):
        api.advise(path, rounds=2, stop_requested=lambda: True)
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        api.advise(path, rounds=12, overrides={"client.epochs": 2000})
    timer.join()
