"""A server or a site that is restored from a backup: the run resumes from a round for which everybody has its state."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from sites_here import InProcessChannel, make_experiment, make_federated, write_kits
from test_server import metrics, parameters, run_all, simulate

from fedcm.config.sections import Experiment
from fedcm.federation.server.replies import BadReply, read_state_offer
from fedcm.federation.server.run import RunRequest, run_federation
from fedcm.federation.terms import read_record

ROUNDS = 12


def scaffold(rounds: int = ROUNDS) -> Experiment:
    return make_experiment("scaffold", rounds, participation={"kind": "independent", "probability": 0.8})


def run_until(folder: Path, chosen: Experiment, rounds: int) -> Path:
    """Run the first rounds, after which the server dies, and return the run's folder."""
    server, channel = folder / "server", InProcessChannel(folder, make_federated(chosen))
    request = RunRequest(server, "r", "lead@example.org", resume=(server / "runs" / "r").exists())
    running = run_federation(request, make_federated(chosen), channel, print, lambda: False, lambda: None)
    for metrics_of_round in running:
        if metrics_of_round["round"] + 1 == rounds:
            break
    running.close()
    return server / "runs" / "r"


def copy_back(backup: Path, place: Path) -> None:
    shutil.rmtree(place)
    shutil.copytree(backup, place)


def resume(folder: Path, chosen: Experiment, lines: list[str]) -> Path:
    return run_all(InProcessChannel(folder, make_federated(chosen)), chosen, lines, resume=True)


@pytest.mark.parametrize("until", [9, ROUNDS], ids=["unfinished", "finished"])
def test_a_server_restored_from_a_backup_ends_with_the_bits_of_the_uninterrupted_run(
    until: int, tmp_path: Path
) -> None:
    """The sites are six or more rounds ahead of the backup."""
    chosen, lines = scaffold(), list[str]()
    folder = write_kits(chosen, tmp_path)
    run = run_until(folder, chosen, 3)
    shutil.copytree(run, tmp_path / "backup")
    run_until(folder, chosen, until)
    copy_back(tmp_path / "backup", run)
    assert parameters(resume(folder, chosen, lines)) == simulate(chosen, tmp_path)
    assert any("resumes at round 3" in line for line in lines)
    assert not any("lost" in line for line in lines)


def test_a_site_restored_from_a_backup_takes_the_run_back_to_its_newest_state(tmp_path: Path) -> None:
    chosen, lines = make_experiment("scaffold", ROUNDS), list[str]()
    folder = write_kits(chosen, tmp_path)
    run = run_until(folder, chosen, 5)
    shutil.copytree(folder / "b" / "state", tmp_path / "backup")
    run_until(folder, chosen, 7)
    copy_back(tmp_path / "backup", folder / "b" / "state")
    assert parameters(resume(folder, chosen, lines)) == simulate(chosen, tmp_path)
    assert "states are lost (b after round 6), so the run goes back from round 7 to round 5" in lines
    assert [line["round"] for line in metrics(run)] == list(range(ROUNDS))


def test_the_log_says_which_state_is_lost_and_what_to_do(tmp_path: Path) -> None:
    chosen, lines = make_experiment("scaffold", 6, federation={"quorum": 0.6}), list[str]()
    folder = write_kits(chosen, tmp_path)
    run = run_until(folder, chosen, 4)
    identity = read_record(run).id
    for lost in (1, 2, 3):
        (folder / "c" / "state" / identity / f"round-{lost:06d}.safetensors").unlink()
    resume(folder, chosen, lines)
    said = [line for line in lines if line.startswith("c has lost")]
    assert said == [
        "c has lost its state after round 3 (its only state is of round 0) and takes no further part in this run, "
        f"unless its operator restores state/{identity} of its kit from a backup, or you resume the run from a backup "
        "of the server's run of that time"
    ]
    assert [line["clients"] for line in metrics(run)[4:]] == [[0, 1]] * 2


@pytest.mark.parametrize(
    ("storage", "kept"),
    [
        ("", [*range(8)]),
        ("states = 5", [*range(3, 8)]),
        ("megabytes = 1", [*range(8)]),
        ("states = 3", [5, 6, 7]),
    ],
)
def test_a_site_keeps_as_many_states_as_its_operator_allows(storage: str, kept: list[int], tmp_path: Path) -> None:
    chosen = make_experiment("scaffold", 9)
    folder = write_kits(chosen, tmp_path)
    with (folder / "a" / "site.toml").open("a") as file:
        file.write(f"[storage]\n{storage}\n")
    run = run_all(InProcessChannel(folder, make_federated(chosen)), chosen)
    files = (folder / "a" / "state" / read_record(run).id).glob("round-*")
    assert sorted(int(file.stem.removeprefix("round-")) for file in files) == [*kept, 8]  # the newest is of the last


def test_an_algorithm_without_client_states_asks_for_none(tmp_path: Path) -> None:
    chosen = make_experiment("fedcm", 4)
    folder = write_kits(chosen, tmp_path)
    run_until(folder, chosen, 2)
    channel = InProcessChannel(folder, make_federated(chosen))
    run_all(channel, chosen, resume=True)
    assert "offer" not in {task for task, _ in channel.asked}


@pytest.mark.parametrize(
    "change",
    [
        lambda fields: fields | {"run": "other"},
        lambda fields: fields | {"states": "0123"},
        lambda fields: fields | {"states": [[]]},
        lambda fields: fields | {"states": [0] * 2000},
        lambda fields: {"refused": "no"},
    ],
    ids=["another-run", "text", "junk", "too-many", "refused"],
)
def test_a_bad_offer_is_rejected(change: Callable[[dict], dict]) -> None:
    good = {"run": "ab", "states": [1, 2]}
    assert read_state_offer(good, "ab") == {1, 2}
    with pytest.raises(BadReply):
        read_state_offer(change(good), "ab")
