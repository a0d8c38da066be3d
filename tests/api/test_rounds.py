"""`fedcm.rounds`: training round by round, stopped by `break`; and Ctrl-C in `fedcm.train`."""

import math
import os
import signal
import threading
from typing import Any

import pytest
import torch
from test_state import SETTINGS, equal, make_clients, make_model

import fedcm
from fedcm.runs.workers import connection


def test_rounds_are_those_of_train() -> None:
    trained = fedcm.train(make_model(), make_clients(), fedcm.FedCM(), rounds=4, **SETTINGS)
    seen = list(fedcm.rounds(make_model(), make_clients(), fedcm.FedCM(), rounds=4, **SETTINGS))
    assert [one.index for one in seen] == [0, 1, 2, 3]
    assert [one.metrics["loss"] for one in seen] == [line["loss"] for line in trained.history]
    assert equal(seen[-1].model(), trained.model)
    assert not equal(seen[0].model(), trained.model)


@pytest.mark.parametrize("workers", [1, 2])
def test_break_stops_early_and_the_state_continues(workers: int) -> None:
    whole = fedcm.train(make_model(), make_clients(), fedcm.Scaffold(), rounds=6, **SETTINGS)
    state = None
    for one in fedcm.rounds(make_model(), make_clients(), fedcm.Scaffold(), rounds=50, workers=workers, **SETTINGS):
        if one.index == 2:
            state = one.state()
            break
    assert state is not None
    assert state.next_round == 3
    rest = fedcm.train(make_model(), make_clients(), fedcm.Scaffold(), rounds=3, resume_from=state, **SETTINGS)
    assert equal(rest.model, whole.model)


def test_the_state_of_an_earlier_round_is_gone() -> None:
    rounds = fedcm.rounds(make_model(), make_clients(), fedcm.FedCM(), rounds=3, **SETTINGS)
    first = next(rounds)
    assert first.state().next_round == 1
    next(rounds)
    with pytest.raises(fedcm.UserError, match="round 0 is gone"):
        first.state()


def test_ctrl_c_returns_the_finished_rounds() -> None:
    threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
    trained = fedcm.train(make_model(), make_clients(), fedcm.FedCM(), rounds=1_000_000, **SETTINGS)
    assert trained.stopped
    done = len(trained.history)
    assert 0 < done == trained.state.next_round < 1_000_000
    again = fedcm.train(make_model(), make_clients(), fedcm.FedCM(), rounds=done, **SETTINGS)
    assert equal(trained.model, again.model)
    assert not again.stopped


def test_a_training_in_another_thread_leaves_signals_alone() -> None:
    results: list[Any] = []
    thread = threading.Thread(
        target=lambda: results.append(fedcm.train(make_model(), make_clients(), fedcm.FedCM(), rounds=2, **SETTINGS))
    )
    thread.start()
    thread.join()
    assert len(results[0].history) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((make_model(), make_clients(), "fedcm"), r"such as fedcm.FedCM\(alpha=0.1\), got 'fedcm'"),
        ((make_model(), make_clients(), fedcm.FedCM), r"fedcm.FedCM\(\), got the class"),
        (("mlp", make_clients(), fedcm.FedCM()), "model must be a torch.nn.Module, got 'mlp'"),
        ((make_model(), "cifar10", fedcm.FedCM()), "clients must be a list"),
        ((make_model(), {"a": make_clients()[0]}, fedcm.FedCM()), "clients must be a list"),
        ((make_model(), [[1, 2], [3, 4]], fedcm.FedCM()), "client 0 must be a torch dataset"),
    ],
)
def test_a_mistaken_argument_raises_one_sentence(arguments: tuple[Any, ...], message: str) -> None:
    for call in (fedcm.train, lambda *given, **more: list(fedcm.rounds(*given, **more)), fedcm.make_experiment):
        with pytest.raises(fedcm.UserError, match=message):
            call(*arguments, rounds=1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"participation": 0}, "participation must be at least 1 client"),
        ({"participation": -3}, "participation must be at least 1 client"),
        ({"participation": 0.0}, "participation must be a probability above 0"),
        ({"participation": 1.5}, "participation must be a probability above 0"),
        ({"participation": float("nan")}, "participation must be a probability above 0"),
        ({"server_lr": -1.0}, "^server_lr must be"),
        ({"evaluate_every": 0}, "^evaluate_every must be"),
        ({"weights_strict": False}, "^weights_strict=False needs model_weights"),
        ({"steps": 2, "epochs": 2}, "^steps and epochs exclude each other"),
        ({"optimizer": torch.optim.SGD([torch.ones(1)])}, r"^optimizer must be .* got a SGD$"),
    ],
)
def test_a_bad_setting_is_rejected_by_the_name_of_its_argument(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(fedcm.UserError, match=message):
        fedcm.train(make_model(), make_clients(), fedcm.FedCM(), rounds=1, **settings)


def test_initial_parameters_must_be_finite() -> None:
    model = make_model()
    with torch.no_grad():
        next(model.parameters())[0] = math.nan
    given: list[dict[str, Any]] = [{}, {"model_weights": model.state_dict()}]
    for settings in given:
        with pytest.raises(fedcm.UserError, match=r"all weights must be finite numbers, but '\S*' has NaN"):
            fedcm.train(model, make_clients(), fedcm.FedCM(), rounds=1, **settings)


@pytest.mark.parametrize("workers", [0, -1, 1.5, True, "two"])
def test_workers_must_be_a_number_of_processes(workers: Any) -> None:
    with pytest.raises(fedcm.UserError, match="workers must be a whole number"):
        fedcm.train(make_model(), make_clients(), fedcm.FedCM(), rounds=1, workers=workers)


@pytest.mark.parametrize(("participation", "used"), [(3, 3), (1.0, 6), (1, 2)])
def test_no_more_workers_start_than_can_share_a_round(
    monkeypatch: pytest.MonkeyPatch, participation: float, used: int
) -> None:
    """On two cores, two workers start in any case, because they can share evaluations."""
    started: list[int] = []

    def fork(folder: object, count: int, *others: object) -> None:
        started.append(count)
        raise fedcm.UserError("enough")

    monkeypatch.setattr(connection, "count_default_workers", lambda device: 2)
    monkeypatch.setattr(connection.Workers, "fork", fork)
    given = {"rounds": 1, **SETTINGS, "participation": participation}
    with pytest.warns(fedcm.ManyWorkersWarning, match=f"^20 workers are more than can share a .*; {used} are used$"):
        rounds = fedcm.rounds(make_model(), make_clients(), fedcm.FedCM(), workers=20, **given)
    with pytest.raises(fedcm.UserError, match="enough"):
        next(rounds)
    assert started == [used]


def test_an_unknown_setting_is_rejected_with_a_suggestion() -> None:
    with pytest.raises(fedcm.UserError, match="no setting 'batchsize'; did you mean 'batch_size'"):
        fedcm.make_experiment(make_model(), make_clients(), fedcm.FedCM(), rounds=1, batchsize=3)  # pyright: ignore[reportCallIssue]


def test_workers_use_a_users_own_loss() -> None:
    def scaled(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return 3 * torch.nn.functional.cross_entropy(outputs, labels)

    one = fedcm.train(make_model(), make_clients(), fedcm.FedCM(), rounds=3, loss=scaled, **SETTINGS)
    two = fedcm.train(make_model(), make_clients(), fedcm.FedCM(), rounds=3, loss=scaled, workers=2, **SETTINGS)
    usual = fedcm.train(make_model(), make_clients(), fedcm.FedCM(), rounds=3, **SETTINGS)
    assert equal(one.model, two.model)
    assert not equal(one.model, usual.model)


@pytest.mark.parametrize("workers", [1, 2])
def test_the_last_round_keeps_its_state_after_the_loop(workers: int) -> None:
    whole = fedcm.train(make_model(), make_clients(), fedcm.Scaffold(), rounds=5, **SETTINGS)
    one = None
    for one in fedcm.rounds(make_model(), make_clients(), fedcm.Scaffold(), rounds=9, workers=workers, **SETTINGS):
        if one.index == 2:
            break
    assert one is not None
    rest = fedcm.train(make_model(), make_clients(), fedcm.Scaffold(), rounds=2, resume_from=one.state(), **SETTINGS)
    assert equal(rest.model, whole.model)


def test_arguments_are_checked_before_the_first_round() -> None:
    with pytest.raises(fedcm.UserError, match="lr must be"):
        fedcm.rounds(make_model(), make_clients(), fedcm.FedCM(), rounds=2, lr=-1.0)
