"""What a site keeps: the state of the round that counted last is the one to go on from."""

from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from fedcm.core.algorithm import Nothing
from fedcm.errors import UserError
from fedcm.federation.site_states import NEVER, SiteStates


class Kept(NamedTuple):
    control: Tensor


def states(folder: Path) -> SiteStates:
    return SiteStates(folder / "state", Kept(torch.zeros(4)))


def kept(number: float) -> Kept:
    return Kept(torch.full((4,), number))


def test_a_site_that_never_counted_begins_anew(tmp_path: Path) -> None:
    states(tmp_path).keep(0, kept(1.0))
    assert torch.equal(states(tmp_path).after(NEVER).control, torch.zeros(4))
    assert not list((tmp_path / "state").glob("round-*")), "a round that did not count leaves nothing"


def test_the_state_that_counted_last_is_found_and_later_ones_are_dropped(tmp_path: Path) -> None:
    for round in range(6):
        states(tmp_path).keep(round, kept(float(round)))
    assert torch.equal(states(tmp_path).after(4).control, torch.full((4,), 4.0))
    names = sorted(file.name for file in (tmp_path / "state").iterdir())
    assert names == [f"round-{round:06d}.safetensors" for round in (2, 3, 4)]
    assert torch.equal(states(tmp_path).after(3).control, torch.full((4,), 3.0)), "the server went back a checkpoint"


def test_a_state_that_is_missing_or_damaged_is_refused_rather_than_made_up(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="what it kept after round 2"):
        states(tmp_path).after(2)
    states(tmp_path).keep(2, kept(2.0))
    file = tmp_path / "state" / "round-000002.safetensors"
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(UserError, match="cannot read it"):
        states(tmp_path).after(2)
    SiteStates(tmp_path / "state", Kept(torch.zeros(5))).keep(3, Kept(torch.zeros(5)))
    with pytest.raises(UserError, match="other fields"):
        states(tmp_path).after(3)


def test_an_algorithm_whose_clients_keep_nothing_writes_nothing(tmp_path: Path) -> None:
    empty = SiteStates(tmp_path / "state", Nothing())
    empty.keep(0, Nothing())
    assert empty.after(0) == Nothing()
    assert not (tmp_path / "state").exists()
