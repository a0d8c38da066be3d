"""What an admin does with a run: look at it, stop it, go on with it, fetch it; and what is told when that cannot be."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from fleet import Fleet, bits, experiment_file, fedcm, lines, until
from scenes import whole

from fedcm.config.experiment import load_experiment
from fedcm.federation.provision.deal import deal

pytestmark = pytest.mark.federation

SITES = ("a", "b")


def short(path: Path, **changes: Any) -> Path:
    return experiment_file(path, **{"split": {"kind": "iid", "clients": 2}, "rounds": 3} | changes)


def long(path: Path, rounds: int = 20) -> Path:
    """So that there is time to do something in between."""
    return short(
        path, rounds=rounds, algorithm={"name": "scaffold"}, client={"epochs": 40, "batch_size": 16, "lr": 0.02}
    )


@pytest.fixture(scope="module")
def up(shared: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    place = tmp_path_factory.mktemp("dealt")
    shared.deal(deal(load_experiment(short(place / "short.toml")), SITES, place).files[0].parent, SITES)
    return shared.start(*SITES)


@pytest.fixture(scope="module")
def finished(up: Fleet, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of a run that is over."""
    done = up.run(short(tmp_path_factory.mktemp("short") / "short.toml"), "finished")
    assert done.code == 0, done.err + up.told()
    return "finished"


def test_status_tells_who_is_connected_and_how_far_runs_are(up: Fleet, finished: str) -> None:
    said = up.call("status")
    assert said.code == 0, said.err
    assert "connected: a, b" in said.out
    assert finished in said.out
    assert "tells how a run that is over ended" in said.out
    told = json.loads(up.call("status", "--json").out)
    assert told["sites"] == ["a", "b"]
    assert next(row for row in told["runs"] if row["run"] == finished)["state"] == "over"
    assert "3/3" in up.call("status", finished).out
    one = json.loads(up.call("status", finished, "--json").out)
    assert [(row["run"], row["state"], row["last"]["round"]) for row in one["runs"]] == [(finished, "finished", 2)]


def test_a_run_that_is_not_there_is_refused(up: Fleet) -> None:
    for what in ("status", "stop", "resume", "logs", "fetch"):
        refused = up.call(what, "nowhere")
        assert refused.code == 2, what
        assert "has no run 'nowhere'" in refused.err


def test_logs_tell_what_happened(up: Fleet, finished: str) -> None:
    said = up.call("logs", finished).out
    assert "run finished begins with 2 sites: a, b" in said
    assert "run finished finished" in said


def test_a_fetched_run_is_one_that_a_report_is_made_of(up: Fleet, finished: str, tmp_path: Path) -> None:
    fetched = up.call("fetch", finished, "--runs-dir", tmp_path / "runs")
    assert fetched.code == 0, fetched.err
    place = tmp_path / "runs" / finished
    assert bits(place) == bits(up.at_server(finished))
    assert len(lines(place)) == 3
    again = up.call("fetch", finished, "--runs-dir", tmp_path / "runs")
    assert again.code == 2
    assert "is there already" in again.err
    report = fedcm("report", tmp_path / "runs", "-o", tmp_path / "page")
    assert report.code == 0, report.err
    assert finished in (tmp_path / "page" / "index.html").read_text()


def test_a_run_with_a_name_that_is_taken_is_refused_and_the_run_there_stays(
    up: Fleet, finished: str, tmp_path: Path
) -> None:
    before = bits(up.at_server(finished))
    refused = up.run(short(tmp_path / "short.toml", seed=2), finished)
    assert refused.code == 2, refused.err
    assert f"the run '{finished}' is there already" in refused.err
    assert "Traceback" not in refused.err
    assert bits(up.at_server(finished)) == before


def test_a_run_that_was_stopped_goes_on_to_the_bits_of_one_that_was_not(up: Fleet, tmp_path: Path) -> None:
    experiment = long(tmp_path / "long.toml", rounds=40)
    run = up.follow("run", experiment, "--name", "stopped")
    up.reaches("stopped", 2)
    refused = up.call("resume", "stopped")
    assert refused.code == 2
    assert "goes on already" in refused.err
    assert up.call("stop", "stopped").code == 0
    assert run.ends() == 1, run.said
    assert "stopped" in run.said
    assert up.rounds("stopped") < 40
    status = json.loads(up.call("status", "stopped", "--json").out)
    assert status["runs"][0]["state"] == "stopped"
    resumed = up.call("resume", "stopped", "--runs-dir", up.folder / "runs")
    assert resumed.code == 0, resumed.err + up.told()
    assert bits(up.folder / "runs" / "stopped") == bits(whole(experiment, tmp_path))


def test_ctrl_c_stops_following_and_the_run_goes_on(up: Fleet, tmp_path: Path) -> None:
    run = up.follow("run", long(tmp_path / "long.toml"), "--name", "left-alone")
    up.reaches("left-alone", 1)
    run.process.send_signal(signal.SIGINT)
    assert run.ends() == 130, run.said
    assert "the run goes on" in run.said
    assert "Traceback" not in run.said
    until(lambda: (up.at_server("left-alone") / "summary.json").exists(), "the end of the run", up.told)
    until(
        lambda: json.loads(up.call("status", "left-alone", "--json").out)["runs"][0]["state"] == "finished",
        "its state",
    )


def test_only_settings_of_the_federation_can_be_changed_on_the_way(up: Fleet, finished: str) -> None:
    refused = up.call("resume", finished, "--set", "client.lr=1")
    assert refused.code == 2
    assert "as it began, but for federation.deadline" in refused.err
