"""Processes killed in the middle of a round: no surviving site's work is lost, and the bits are the same."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fleet import CONNECTED, Fleet, bits, experiment_file, lines, until
from scenes import run_to_end

pytestmark = pytest.mark.federation

SITES = ("a", "b", "c")
ROUNDS = 4
Dealt = Callable[..., list[str]]


def long_rounds(path: Path, algorithm: str, **changes: Any) -> Path:
    """An experiment with rounds long enough to kill something in one."""
    client = {"epochs": 40, "batch_size": 16, "lr": 0.02}
    return experiment_file(path, rounds=ROUNDS, algorithm={"name": algorithm}, client=client, **changes)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """The bits of an uninterrupted run: those of the simulation, which a federation reproduces."""
    folder, known = tmp_path_factory.mktemp("uninterrupted"), {}

    def bits_of(algorithm: str) -> str:
        if algorithm not in known:
            known[algorithm] = bits(run_to_end(long_rounds(folder / "long.toml", algorithm), folder, algorithm))
        return known[algorithm]

    return bits_of


@pytest.fixture
def three(fleet: Fleet, dealt: Dealt, tmp_path: Path) -> Fleet:
    dealt(long_rounds(tmp_path / "dealt.toml", "fedcm"), fleet, *SITES)
    return fleet.start(*SITES)


def in_the_middle_of_a_round(fleet: Fleet, run: str, after: int, site: str) -> None:
    """Wait until `after` rounds are saved and the site works on the next one."""
    fleet.wait_for_round(run, after)
    training = fleet.running[site].part("training")
    before = training.cpu_times().user
    until(lambda: training.cpu_times().user > before + 0.2, f"a step of {site}", fleet.collect_output)
    assert fleet.rounds(run) < ROUNDS


@pytest.mark.parametrize("algorithm", ["fedcm", "scaffold"])
def test_a_site_with_killed_training_repeats_the_round_to_the_same_bits(
    three: Fleet, uninterrupted: Callable[[str], str], algorithm: str, tmp_path: Path
) -> None:
    run = three.follow("run", long_rounds(tmp_path / "long.toml", algorithm), "--name", "r")
    in_the_middle_of_a_round(three, "r", 1, "b")
    three.running["b"].part("training").kill()
    assert run.wait() == 0, run.output + three.collect_output()
    assert bits(three.folder / "runs" / "r") == uninterrupted(algorithm)
    assert three.running["b"].output.count("the training process was killed by SIGKILL and is restarted") == 1
    assert [line["missed"] for line in lines(three.at_server("r"))] == [[]] * ROUNDS


def test_a_run_finishes_without_a_killed_site(three: Fleet, tmp_path: Path) -> None:
    links = {"classes": 10, "quorum": 0.6, "wait": 2}
    run = three.follow("run", long_rounds(tmp_path / "long.toml", "fedcm", federation=links), "--name", "r")
    in_the_middle_of_a_round(three, "r", 1, "b")
    three.running["b"].kill()
    assert run.wait() == 0, run.output + three.collect_output()
    rounds = lines(three.folder / "runs" / "r")
    assert len(rounds) == ROUNDS
    assert all({0, 2} <= set(line["clients"]) for line in rounds), "both survivors count in every round"
    assert rounds[0]["clients"] == [0, 1, 2]
    assert rounds[0]["missed"] == []
    assert [line["missed"] for line in rounds[1:]] == [["b"]] * (ROUNDS - 1)
    log = three.call("logs", "r").out
    assert "round 1: b does not count" in log


@pytest.mark.parametrize("algorithm", ["fedcm", "scaffold"])
def test_a_followed_run_survives_a_killed_server_with_the_same_bits(
    three: Fleet, uninterrupted: Callable[[str], str], algorithm: str, tmp_path: Path
) -> None:
    run = three.follow("run", long_rounds(tmp_path / "long.toml", algorithm), "--name", "r")
    in_the_middle_of_a_round(three, "r", 2, "a")
    three.running["server"].kill()
    assert 2 <= three.rounds("r") < ROUNDS
    three.start_server()
    assert run.wait() == 0, run.output + three.collect_output()
    assert bits(three.folder / "runs" / "r") == uninterrupted(algorithm)
    assert [line["clients"] for line in lines(three.at_server("r"))] == [[0, 1, 2]] * ROUNDS


@pytest.mark.parametrize("algorithm", ["fedcm", "scaffold"])
def test_a_run_is_resumed_after_a_killed_server_to_the_same_bits(
    three: Fleet, uninterrupted: Callable[[str], str], algorithm: str, tmp_path: Path
) -> None:
    started = three.run(long_rounds(tmp_path / "long.toml", algorithm), "r", "--detach")
    assert started.code == 0, started.err
    in_the_middle_of_a_round(three, "r", 2, "a")
    three.running["server"].kill()
    three.start_server()
    resumed = three.call("resume", "r", "--runs-dir", three.folder / "runs")
    assert resumed.code == 0, resumed.err + three.collect_output()
    assert bits(three.folder / "runs" / "r") == uninterrupted(algorithm)


def test_a_run_survives_a_killed_job_at_a_site_with_the_same_bits(
    three: Fleet, uninterrupted: Callable[[str], str], tmp_path: Path
) -> None:
    """The engine then ends the job for all sites; the follower resumes the run in a new one."""
    run = three.follow("run", long_rounds(tmp_path / "long.toml", "scaffold"), "--name", "r")
    in_the_middle_of_a_round(three, "r", 1, "b")
    three.running["b"].part("job").kill()
    assert run.wait() == 0, run.output + three.collect_output()
    assert bits(three.folder / "runs" / "r") == uninterrupted("scaffold")


def test_a_site_with_a_killed_engine_reconnects_and_the_others_count(three: Fleet, tmp_path: Path) -> None:
    links = {"classes": 10, "quorum": 0.6, "wait": 2}
    run = three.follow("run", long_rounds(tmp_path / "long.toml", "fedcm", federation=links), "--name", "r")
    in_the_middle_of_a_round(three, "r", 1, "b")
    three.running["b"].part("engine").kill()
    three.running["b"].wait_for("the engine was killed by SIGKILL; restart in")
    three.running["b"].wait_for(CONNECTED, times=2)
    assert run.wait() == 0, run.output + three.collect_output()
    assert all({0, 2} <= set(line["clients"]) for line in lines(three.folder / "runs" / "r"))


def test_a_restarted_site_counts_again(three: Fleet, tmp_path: Path) -> None:
    links = {"classes": 10, "quorum": 0.6, "wait": 1}
    experiment = long_rounds(tmp_path / "long.toml", "fedcm", federation=links)
    run = three.follow("run", experiment, "--set", "rounds=40", "--name", "r")
    in_the_middle_of_a_round(three, "r", 1, "b")
    three.running["b"].kill()
    three.start_site("b")
    until(
        lambda: any(1 in line["clients"] for line in lines(three.at_server("r"))[2:]),
        "b counts again",
        three.collect_output,
    )
    assert run.process.poll() is None
