"""A checkpoint is complete or does not exist, and is restored bit for bit."""

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from fedcm.runs.checkpoint import Checkpoint, clear_checkpoints_after, read_newest_checkpoint, write_checkpoint


class State(NamedTuple):
    params: Tensor
    momentum: Tensor


TEMPLATE = State(torch.zeros(3), torch.zeros(3))


def state(value: float) -> State:
    return State(torch.full((3,), value), torch.full((3,), -value))


def test_a_state_is_restored_bit_for_bit(tmp_path: Path) -> None:
    clients = {"@clients": torch.tensor([4, 9]), "control": torch.randn(2, 3)}
    write_checkpoint(tmp_path, Checkpoint(7, state(0.1), clients), keep=2)
    found = read_newest_checkpoint(tmp_path, TEMPLATE, lambda _: None, print)
    assert found is not None
    assert found.next_round == 7
    assert isinstance(found.server, State)
    assert torch.equal(found.server.params, state(0.1).params)
    assert torch.equal(found.client_states["control"], clients["control"])


def test_two_fields_that_share_memory_are_saved_separately(tmp_path: Path) -> None:
    shared = torch.arange(3.0)
    write_checkpoint(tmp_path, Checkpoint(1, State(shared, shared), {}), keep=2)
    found = read_newest_checkpoint(tmp_path, TEMPLATE, lambda _: None, print)
    assert found is not None
    assert torch.equal(found.server.momentum, shared)


def test_only_the_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    for rounds in (2, 4, 6, 8):
        write_checkpoint(tmp_path, Checkpoint(rounds, state(rounds), {}), keep=2)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [f"round-00000{n}.{kind}" for n in (6, 8) for kind in ("json", "safetensors")]


def test_files_that_are_not_checkpoints_are_removed(tmp_path: Path) -> None:
    for rounds in (2, 4):
        write_checkpoint(tmp_path, Checkpoint(rounds, state(rounds), {}), keep=5)
    (tmp_path / "round-000004.safetensors").write_bytes(b"damaged")
    (tmp_path / "round-000001.safetensors").write_bytes(b"its note is gone")
    (tmp_path / ".round-000006.abc.safetensors").write_bytes(b"half")
    (tmp_path / ".round-000006.abc.json").write_bytes(b"half")
    found = read_newest_checkpoint(tmp_path, TEMPLATE, lambda _: None, lambda _: None)
    assert found is not None
    clear_checkpoints_after(tmp_path, found.next_round)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["round-000002.json", "round-000002.safetensors"]


def test_the_files_have_the_permissions_of_the_umask(tmp_path: Path) -> None:
    (tmp_path / "ordinary").touch()
    write_checkpoint(tmp_path, Checkpoint(1, state(1), {}), keep=1)
    modes = {path.name: path.stat().st_mode for path in tmp_path.iterdir()}
    assert len(modes) == 3
    assert set(modes.values()) == {modes["ordinary"]}
