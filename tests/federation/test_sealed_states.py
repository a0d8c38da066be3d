"""Client states that are encrypted on a site's disk: no plain state, no swapped file, one sentence without the key."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from made_kits import Root, free_port, make_kit
from safetensors.torch import load_file
from scenes import Answer
from sites_here import InProcessChannel, make_experiment, make_federated, write_kits
from test_check import check_all, with_data
from test_server import metrics, parameters, run_all, simulate
from test_site_states import Kept

from fedcm.config.sections import Experiment
from fedcm.errors import UserError
from fedcm.federation.settings import SiteStorageSection
from fedcm.federation.site import state_cipher
from fedcm.federation.site.state_cipher import StateCipher, StateName, UnreadableState, is_sealed, read_state_key
from fedcm.federation.site.states import SiteStates
from fedcm.federation.terms import read_record

RUN = "ab" * 16
STATE = Kept(torch.arange(1.0, 1001.0))
KEY = bytes(range(32))


def write_key(path: Path, key: bytes = KEY) -> Path:
    path.write_bytes(key)
    path.chmod(0o600)
    return path


def sealed_states(folder: Path, run: str = RUN, client: int = 0, key: bytes = KEY) -> SiteStates:
    return SiteStates(folder / run, Kept(torch.zeros(1000)), SiteStorageSection(), client, StateCipher(key))


def get_file(folder: Path, round: int, run: str = RUN) -> Path:
    return folder / run / f"round-{round:06d}.sealed"


def test_a_sealed_state_is_read_back_and_its_bytes_say_nothing(tmp_path: Path) -> None:
    for round in (0, 1):
        sealed_states(tmp_path).save(round, STATE)
    assert torch.equal(sealed_states(tmp_path).load_state_after(1).control, STATE.control)
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 2
    plain = STATE.control.numpy()
    for data in files:
        assert is_sealed(data)
        assert b"control" not in data
        assert not any(plain[start : start + 2].tobytes() in data for start in range(0, 998, 2))
    assert files[0][40:] != files[1][40:], "the same state has other bytes in every file, because nonces are random"


@pytest.mark.parametrize("what", ["round", "run", "client"])
def test_a_file_in_the_place_of_another_is_rejected(what: str, tmp_path: Path) -> None:
    sealed_states(tmp_path).save(3, STATE)
    run, client, round = "cd" * 16 if what == "run" else RUN, int(what == "client"), 4 if what == "round" else 3
    target = get_file(tmp_path, round, run)
    target.parent.mkdir(exist_ok=True)
    if target != get_file(tmp_path, 3):
        shutil.copyfile(get_file(tmp_path, 3), target)
    with pytest.raises(UserError, match="it was changed, or is of another run, site or round"):
        sealed_states(tmp_path, run, client).load_state_after(round)
    assert torch.equal(sealed_states(tmp_path).read_state_after(3).control, STATE.control), (
        "in its own place it is read"
    )


@pytest.mark.parametrize("place", [30, 45, 1000, -1])
def test_a_changed_byte_is_rejected(place: int, tmp_path: Path) -> None:
    sealed_states(tmp_path).save(3, STATE)
    data = bytearray(get_file(tmp_path, 3).read_bytes())
    data[place] ^= 1
    get_file(tmp_path, 3).write_bytes(data)
    with pytest.raises(UserError, match="it was changed"):
        sealed_states(tmp_path).load_state_after(3)


@pytest.mark.parametrize("kept", [0, 21, 29, 40, 500])
def test_a_cut_file_is_rejected(kept: int, tmp_path: Path) -> None:
    sealed_states(tmp_path).save(3, STATE)
    get_file(tmp_path, 3).write_bytes(get_file(tmp_path, 3).read_bytes()[:kept])
    with pytest.raises(UserError, match="this site needs its state after round 3"):
        sealed_states(tmp_path).load_state_after(3)


def test_pieces_cannot_be_exchanged_or_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_cipher, "_PIECE", 100)
    cipher, name, data = StateCipher(KEY), StateName(RUN, 0, 1), os.urandom(250)
    sealed = cipher.seal(data, name)
    assert cipher.open(sealed, name) == data
    head, first, second, third = sealed[:29], sealed[29:157], sealed[157:285], sealed[285:]
    assert len(third) == 78
    for changed in (head + second + first + third, head + first + second, head + first + third):
        with pytest.raises(UnreadableState, match="it was changed"):
            cipher.open(changed, name)


def test_another_key_is_said_in_one_sentence(tmp_path: Path) -> None:
    sealed_states(tmp_path).save(3, STATE)
    with pytest.raises(UserError, match=r"encrypted with another key than storage.key") as error:
        sealed_states(tmp_path, key=bytes(32)).load_state_after(3)
    assert "\n" not in str(error.value)


def test_states_of_before_and_after_the_key_are_not_confused(tmp_path: Path) -> None:
    plain = SiteStates(tmp_path / RUN, Kept(torch.zeros(1000)))
    plain.save(3, STATE)
    with pytest.raises(UserError, match=r"it is not encrypted, but storage.key is set"):
        sealed_states(tmp_path).load_state_after(3)
    sealed_states(tmp_path).save(4, STATE)
    with pytest.raises(UserError, match=r"it is encrypted, and storage.key in site.toml is not set"):
        plain.load_state_after(4)


def test_a_missing_short_or_readable_key_is_said_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot be read .*; restore it, because encrypted states are lost without it"):
        read_state_key(tmp_path, "state.key")
    path = write_key(tmp_path / "state.key", b"short")
    with pytest.raises(UserError, match="must have 32 bytes, got 5"):
        read_state_key(tmp_path, "state.key")
    write_key(path).chmod(0o640)
    with pytest.raises(UserError, match=r"only its owner may read the key .* its mode is 640; run `chmod 600"):
        read_state_key(tmp_path, "state.key")
    path.chmod(0o600)
    assert read_state_key(tmp_path, "state.key") == KEY
    assert read_state_key(tmp_path / "elsewhere", str(path)) == KEY, "the key may be outside the kit"


@pytest.fixture
def scaffold(tmp_path: Path) -> tuple[Experiment, Path]:
    """A federation whose site `a` encrypts its states."""
    chosen = make_experiment("scaffold", 4, federation={"quorum": 0.6})
    folder = write_kits(chosen, tmp_path)
    write_key(tmp_path / "a.key")
    with (folder / "a" / "site.toml").open("a") as file:
        file.write('[storage]\nkey = "../a.key"\n')
    return chosen, folder


def test_a_run_with_encrypted_states_has_the_bits_of_the_simulation(
    scaffold: tuple[Experiment, Path], tmp_path: Path
) -> None:
    chosen, folder = scaffold
    run = run_all(InProcessChannel(folder, make_federated(chosen)), chosen)
    assert parameters(run) == simulate(chosen, tmp_path)
    identity = read_record(run).id
    own = sorted((folder / "a" / "state" / identity).glob("round-*"))
    assert [file.suffix for file in own] == [".sealed"] * 4
    assert all(is_sealed(file.read_bytes()) for file in own)
    other = load_file(folder / "b" / "state" / identity / "round-000003.safetensors")
    assert set(other) == {"control"}, "a site without a key stores its states as before"


def test_a_site_that_has_lost_its_key_is_left_out_with_one_sentence(
    scaffold: tuple[Experiment, Path], tmp_path: Path
) -> None:
    chosen, folder = scaffold
    (tmp_path / "a.key").unlink()
    lines: list[str] = []
    run = run_all(InProcessChannel(folder, make_federated(chosen)), chosen, lines)
    assert [line["clients"] for line in metrics(run)] == [[1, 2]] * 4
    assert any("a is missing at the start" in line and "storage.key" in line for line in lines)


def test_a_site_with_a_bad_key_is_not_started(tmp_path: Path, fedcm: Callable[..., Answer]) -> None:
    kit = with_data(make_kit(tmp_path / "berlin", "site", Root(), free_port()))
    with (kit.path / "site.toml").open("a") as file:
        file.write('[storage]\nkey = "../state.key"\n')
    write_key(tmp_path / "state.key").chmod(0o604)
    answer = fedcm("federation", "site", kit.path)
    assert (answer.code, answer.err.count("\n")) == (2, 1)
    assert "only its owner may read the key" in answer.err
    assert any("only its owner may read the key" in result.message for result in check_all(kit).values())
    (tmp_path / "state.key").chmod(0o600)
    assert check_all(kit)["client states"].message == "encrypted with ../state.key"
