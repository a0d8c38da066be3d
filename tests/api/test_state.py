"""A training continues exactly from its state: 10 rounds and then 10 more have the bits of 20."""

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedcm

SETTINGS: dict[str, Any] = {"lr": 0.5, "lr_decay": 0.97, "participation": 0.5, "batch_size": 4, "seed": 3}


def make_clients(count: int = 6) -> list[tuple[torch.Tensor, torch.Tensor]]:
    draw = torch.Generator().manual_seed(1)
    return [(torch.randn(9, 3, generator=draw) + k / 5, torch.arange(9) % 2) for k in range(count)]


def make_model() -> torch.nn.Module:
    model = torch.nn.Linear(3, 2)
    torch.nn.init.constant_(model.weight, 0.1)
    torch.nn.init.zeros_(model.bias)
    return model


def equal(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize("algorithm", [fedcm.FedCM(alpha=0.1), fedcm.FedAdam(), fedcm.Scaffold(), fedcm.FedDyn()])
def test_ten_rounds_and_ten_more_are_twenty(algorithm: Any, tmp_path: Path) -> None:
    clients = make_clients()
    whole = fedcm.train(make_model(), clients, algorithm, rounds=20, **SETTINGS)
    half = fedcm.train(make_model(), clients, algorithm, rounds=10, **SETTINGS)
    half.state.save(tmp_path / "half.safetensors")
    state = fedcm.RunState.load(tmp_path / "half.safetensors")
    rest = fedcm.train(make_model(), clients, algorithm, rounds=10, resume_from=state, **SETTINGS)
    assert equal(rest.model, whole.model)
    assert not equal(half.model, whole.model)
    assert [line["round"] for line in rest.history] == list(range(10, 20))
    assert rest.state.next_round == 20
    without_time = [{k: v for k, v in line.items() if k != "seconds"} for line in (*half.history, *rest.history)]
    assert without_time == [{k: v for k, v in line.items() if k != "seconds"} for line in whole.history]


def test_workers_and_states_give_the_same_bits() -> None:
    clients, algorithm = make_clients(), fedcm.Scaffold()
    whole = fedcm.train(make_model(), clients, algorithm, rounds=6, **SETTINGS)
    shared = fedcm.train(make_model(), clients, algorithm, rounds=4, workers=2, **SETTINGS)
    rest = fedcm.train(make_model(), clients, algorithm, rounds=2, workers=3, resume_from=shared.state, **SETTINGS)
    assert equal(rest.model, whole.model)


def test_workers_are_processes(tmp_path: Path) -> None:
    def record_process(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        (tmp_path / str(os.getpid())).touch()
        return torch.nn.functional.cross_entropy(outputs, labels)

    fedcm.train(make_model(), make_clients(), fedcm.FedCM(), rounds=3, workers=3, loss=record_process)
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lr": 0.4}, "the same settings"),
        ({"seed": 4}, "the same settings"),
        ({"clients": 5}, "the same data"),
        ({"model": torch.nn.Linear(3, 2, bias=False)}, "other shapes"),
        ({"algorithm": fedcm.FedAvg()}, "other shapes"),
    ],
)
def test_a_state_of_another_training_is_rejected(changes: dict[str, Any], message: str) -> None:
    state = fedcm.train(make_model(), make_clients(), fedcm.FedCM(), rounds=1, **SETTINGS).state
    clients = make_clients(changes.pop("clients", 6))
    model, algorithm = changes.pop("model", make_model()), changes.pop("algorithm", fedcm.FedCM())
    with pytest.raises(fedcm.UserError, match=message):
        fedcm.train(model, clients, algorithm, rounds=1, resume_from=state, **SETTINGS | changes)


def test_a_file_that_is_no_state_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(fedcm.UserError, match=r"RunState\.save"):
        fedcm.RunState.load(tmp_path / "notes.txt")
    with pytest.raises(fedcm.UserError, match=r"RunState\.save"):
        fedcm.RunState.load(tmp_path / "missing")


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"next_round": -1}, "next_round of resume_from must be a whole number"),
        ({"next_round": "2"}, "next_round of resume_from must be a whole number"),
        ({"clients": {0: {"other": torch.zeros(8)}}}, "the state of client 0 has other fields or shapes"),
        ({"clients": {0: {"control": torch.zeros(2)}}}, "the state of client 0 has other fields or shapes"),
    ],
)
def test_a_state_that_was_changed_by_hand_is_rejected(changes: dict[str, Any], message: str, workers: int) -> None:
    given: Any = (make_model(), make_clients(), fedcm.Scaffold())
    state = dataclasses.replace(fedcm.train(*given, rounds=1, **SETTINGS).state, **changes)
    with pytest.raises(fedcm.UserError, match=message):
        fedcm.train(*given, rounds=1, resume_from=state, workers=workers, **SETTINGS)


def test_a_state_with_a_changed_byte_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "state"
    fedcm.train(make_model(), make_clients(), fedcm.Scaffold(), rounds=1, **SETTINGS).state.save(path)
    contents = bytearray(path.read_bytes())
    contents[-1] ^= 1
    path.write_bytes(contents)
    with pytest.raises(fedcm.UserError, match="another checksum"):
        fedcm.RunState.load(path)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("client", [-1, 6, 10**12, "2"])
def test_a_state_of_a_client_that_does_not_exist_is_rejected(client: Any, workers: int) -> None:
    state = fedcm.train(make_model(), make_clients(), fedcm.Scaffold(), rounds=2, **SETTINGS).state
    some = next(iter(state.clients.values()))
    wrong = dataclasses.replace(state, clients={**state.clients, client: some})
    with pytest.raises(fedcm.UserError, match=f"numbers from 0 to 5, because there are 6 clients, got {client!r}"):
        fedcm.train(
            make_model(), make_clients(), fedcm.Scaffold(), rounds=1, workers=workers, resume_from=wrong, **SETTINGS
        )


def test_the_rounds_of_a_state_may_be_a_number_of_numpy() -> None:
    state = fedcm.train(make_model(), make_clients(), fedcm.FedCM(), rounds=np.int64(2), **SETTINGS).state  # pyright: ignore[reportArgumentType]
    numbers = dataclasses.replace(state, next_round=np.int64(2))
    rest = fedcm.train(make_model(), make_clients(), fedcm.FedCM(), rounds=1, resume_from=numbers, **SETTINGS)
    assert [line["round"] for line in rest.history] == [2]


@pytest.mark.parametrize("algorithm", [fedcm.Scaffold(), fedcm.FedDyn()])
def test_a_state_of_another_precision_is_converted(algorithm: Any) -> None:
    half = fedcm.train(make_model(), make_clients(), algorithm, rounds=4, **SETTINGS)
    wide = dataclasses.replace(
        half.state,
        server={name: field.double() for name, field in half.state.server.items()},
        clients={
            client: {name: field.double() for name, field in fields.items()}
            for client, fields in half.state.clients.items()
        },
    )
    one, other = (
        fedcm.train(make_model(), make_clients(), algorithm, rounds=4, resume_from=state, **SETTINGS)
        for state in (half.state, wide)
    )
    assert equal(one.model, other.model)
    fields = [field for state in (other.state.server, *other.state.clients.values()) for field in state.values()]
    assert {field.dtype for field in fields} == {torch.float32}
