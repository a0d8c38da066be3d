"""Client states in a file: no state that a stored checkpoint refers to is overwritten."""

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcm.algorithms import FedCM, Scaffold
from fedcm.algorithms.variance_reduction.scaffold import ClientState
from fedcm.executors.client_state_file import ClientStatesInFile

P = 5


def open_states(folder: Path, every: int = 2, keep: int = 2) -> ClientStatesInFile:
    return ClientStatesInFile(Scaffold().init_client(torch.zeros(P)), folder / "states.bin", every * (keep + 1))


def run_round(states: list[ClientStatesInFile], cohort: np.ndarray, index: int) -> None:
    """Run a round on n processes: process k % n puts client k, and all commit the same checksums."""
    for mine in states:
        mine.prepare(cohort, index)
    checksums = []
    for client in cohort.tolist():
        value = torch.full((P,), 100.0 * index + client)
        checksums.append(float(states[client % len(states)].put(client, ClientState(value))))
    for mine in states:
        mine.commit(cohort, checksums)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(0, 1000))
def test_every_stored_checkpoint_can_be_restored(
    tmp_path_factory: pytest.TempPathFactory, processes: int, every: int, keep: int, seed: int
) -> None:
    folder = tmp_path_factory.mktemp("states")
    shared = [open_states(folder, every, keep) for _ in range(processes)]
    draw = np.random.default_rng(seed)
    latest: dict[int, float] = {}
    kept: list[tuple[dict[str, torch.Tensor], dict[int, float]]] = []
    for index in range(25):
        cohort = np.flatnonzero(draw.random(9) < 0.4)
        run_round(shared, cohort, index)
        latest |= {client: 100.0 * index + client for client in cohort.tolist()}
        if (index + 1) % every == 0:
            kept = [*kept, (shared[0].save(), dict(latest))][-keep:]
        for table, truth in kept:
            with closing(open_states(folder, every, keep)) as resumed:
                assert resumed.try_restore(table) is None
                for client, value in truth.items():
                    assert torch.equal(resumed.get(client).control, torch.full((P,), value))
    for one in shared:
        one.close()
    slots = (folder / "states.bin").stat().st_size // (P * 4)
    assert slots <= 9 * (1 + every * (keep + 1)), "slots must be reused"


def test_rounded_states_are_rounded_once_and_take_half_the_bytes(tmp_path: Path) -> None:
    path = tmp_path / "states.bin"
    states = [ClientStatesInFile(Scaffold().init_client(torch.zeros(P)), path, 6, torch.bfloat16) for _ in range(2)]
    put = torch.tensor([1.0, 1 / 3, -1e-9, 3e38, 257.0])
    for index in range(3):  # states that are already rounded do not change again
        for mine in states:
            mine.prepare(np.array([4]), index)
        checksum = states[0].put(4, ClientState(put))
        for mine in states:
            mine.commit(np.array([4]), [float(checksum)])
        got = [mine.get(4).control for mine in states]
        assert got[0].dtype == torch.float32
        assert torch.equal(got[0], put.bfloat16().float())
        assert torch.equal(got[0], got[1])
        put = got[0]
    assert path.stat().st_size == 3 * P * 2


def test_a_new_client_has_the_initial_state(tmp_path: Path) -> None:
    assert torch.equal(open_states(tmp_path).get(3).control, torch.zeros(P))


def test_an_unfinished_round_changes_nothing(tmp_path: Path) -> None:
    states = open_states(tmp_path)
    run_round([states], np.array([1, 2]), 0)
    states.prepare(np.array([1, 2]), 1)
    states.put(1, ClientState(torch.full((P,), -1.0)))
    assert torch.equal(states.get(1).control, torch.full((P,), 1.0))
    run_round([states], np.array([2]), 1)
    assert torch.equal(states.get(1).control, torch.full((P,), 1.0))
    assert torch.equal(states.get(2).control, torch.full((P,), 102.0))


def test_damaged_states_are_detected(tmp_path: Path) -> None:
    states = open_states(tmp_path)
    run_round([states], np.array([4]), 0)
    table = states.save()
    path = tmp_path / "states.bin"
    raw = bytearray(path.read_bytes())
    raw[7] ^= 1
    path.write_bytes(raw)
    assert "state of client 4 is damaged" in (open_states(tmp_path).try_restore(table) or "")


def test_algorithms_without_client_state_create_no_file(tmp_path: Path) -> None:
    states = ClientStatesInFile(FedCM().init_client(torch.zeros(P)), tmp_path / "clients" / "states.bin", 10)
    states.prepare(np.array([1]), 0)
    assert states.put(1, ()) == 0
    states.commit(np.array([1]), [0.0])
    assert states.save() == {}
    assert not (tmp_path / "clients").exists()
