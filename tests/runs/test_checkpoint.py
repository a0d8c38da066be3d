"""Checkpoints are whole or not at all, and come back as they were."""

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from fedcm.runs import checkpoint
from fedcm.runs.checkpoint import Checkpoint


class State(NamedTuple):
    params: Tensor
    momentum: Tensor


TEMPLATE = State(torch.zeros(3), torch.zeros(3))


def state(value: float) -> State:
    return State(torch.full((3,), value), torch.full((3,), -value))


def test_a_state_comes_back_to_the_last_bit(tmp_path: Path) -> None:
    clients = {"@clients": torch.tensor([4, 9]), "control": torch.randn(2, 3)}
    checkpoint.write(tmp_path, Checkpoint(7, state(0.1), clients), keep=2)
    found = checkpoint.read_newest(tmp_path, TEMPLATE, lambda _: None, print)
    assert found is not None
    assert found.next_round == 7
    assert isinstance(found.server, State)
    assert torch.equal(found.server.params, state(0.1).params)
    assert torch.equal(found.client_states["control"], clients["control"])


def test_two_fields_that_share_their_memory_are_saved_apart(tmp_path: Path) -> None:
    shared = torch.arange(3.0)
    checkpoint.write(tmp_path, Checkpoint(1, State(shared, shared), {}), keep=2)
    found = checkpoint.read_newest(tmp_path, TEMPLATE, lambda _: None, print)
    assert found is not None
    assert torch.equal(found.server.momentum, shared)


def test_only_the_newest_few_are_kept(tmp_path: Path) -> None:
    for rounds in (2, 4, 6, 8):
        checkpoint.write(tmp_path, Checkpoint(rounds, state(rounds), {}), keep=2)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [f"round-00000{n}.{kind}" for n in (6, 8) for kind in ("json", "safetensors")]


def test_what_is_no_checkpoint_is_cleared(tmp_path: Path) -> None:
    for rounds in (2, 4):
        checkpoint.write(tmp_path, Checkpoint(rounds, state(rounds), {}), keep=5)
    (tmp_path / "round-000004.safetensors").write_bytes(b"damaged")
    (tmp_path / "round-000001.safetensors").write_bytes(b"its note is gone")
    (tmp_path / ".round-000006.abc.safetensors").write_bytes(b"half")
    (tmp_path / ".round-000006.abc.json").write_bytes(b"half")
    found = checkpoint.read_newest(tmp_path, TEMPLATE, lambda _: None, lambda _: None)
    assert found is not None
    checkpoint.clear_after(tmp_path, found.next_round)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["round-000002.json", "round-000002.safetensors"]


def test_the_files_can_be_read_by_whoever_may_read_the_folder(tmp_path: Path) -> None:
    (tmp_path / "ordinary").touch()
    checkpoint.write(tmp_path, Checkpoint(1, state(1), {}), keep=1)
    modes = {path.name: path.stat().st_mode for path in tmp_path.iterdir()}
    assert len(modes) == 3
    assert set(modes.values()) == {modes["ordinary"]}
