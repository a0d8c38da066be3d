"""Client states at a site: training continues from the state of the round that counted last."""

from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from fedcm.core.algorithm import Nothing
from fedcm.errors import UserError
from fedcm.federation.settings import SiteStorageSection
from fedcm.federation.site.states import SiteStates
from fedcm.federation.terms import NEVER


class Kept(NamedTuple):
    control: Tensor


def states(folder: Path, **storage: Any) -> SiteStates:
    return SiteStates(folder / "state", Kept(torch.zeros(4)), SiteStorageSection(**storage))


def kept(number: float) -> Kept:
    return Kept(torch.full((4,), number))


def test_a_site_that_never_counted_starts_from_the_initial_state(tmp_path: Path) -> None:
    states(tmp_path).save(0, kept(1.0))
    assert torch.equal(states(tmp_path).load_state_after(NEVER).control, torch.zeros(4))
    assert not list((tmp_path / "state").glob("round-*")), "the state of a round that did not count is deleted"


def test_the_state_that_counted_last_is_loaded_and_later_ones_are_deleted(tmp_path: Path) -> None:
    for round in range(6):
        states(tmp_path).save(round, kept(float(round)))
    assert torch.equal(states(tmp_path, states=3).load_state_after(4).control, torch.full((4,), 4.0))
    names = sorted(file.name for file in (tmp_path / "state").iterdir())
    assert names == [f"round-{round:06d}.safetensors" for round in (2, 3, 4)]
    assert torch.equal(states(tmp_path).load_state_after(3).control, torch.full((4,), 3.0)), (
        "the server resumed from an older checkpoint"
    )


def test_old_states_are_deleted_when_they_take_more_than_their_bytes_but_never_the_newest_three(tmp_path: Path) -> None:
    large = Kept(torch.zeros(100_000))  # 400 kB
    own = SiteStates(tmp_path / "state", large, SiteStorageSection(megabytes=2))
    for round in range(7):
        own.save(round, large)
    own.load_state_after(6)
    assert own.list_rounds() == [3, 4, 5, 6]
    own = SiteStates(tmp_path / "state", large, SiteStorageSection(megabytes=1))
    own.load_state_after(6)
    assert own.list_rounds() == [4, 5, 6]


def test_a_missing_or_damaged_state_raises(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="needs its state after round 2"):
        states(tmp_path).load_state_after(2)
    states(tmp_path).save(2, kept(2.0))
    file = tmp_path / "state" / "round-000002.safetensors"
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(UserError, match="cannot read"):
        states(tmp_path).load_state_after(2)
    SiteStates(tmp_path / "state", Kept(torch.zeros(5))).save(3, Kept(torch.zeros(5)))
    with pytest.raises(UserError, match="other fields"):
        states(tmp_path).load_state_after(3)


def test_an_algorithm_without_client_state_writes_nothing(tmp_path: Path) -> None:
    empty = SiteStates(tmp_path / "state", Nothing())
    empty.save(0, Nothing())
    assert empty.load_state_after(0) == Nothing()
    assert not (tmp_path / "state").exists()


def test_an_evaluation_reads_the_state_that_counted_last_and_deletes_nothing(tmp_path: Path) -> None:
    for round in range(6):
        states(tmp_path).save(round, kept(float(round)))
    assert torch.equal(states(tmp_path).read_state_after(4).control, torch.full((4,), 4.0))
    assert torch.equal(states(tmp_path).read_state_after(NEVER).control, torch.zeros(4))
    assert len(list((tmp_path / "state").iterdir())) == 6
