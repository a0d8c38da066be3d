"""What an admin does with a run: status, stop, resume, logs and fetch, and their errors."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from fleet import Fleet, bits, experiment_file, fedcm, lines, until
from scenes import run_to_end

from fedcm.config.experiment import load_experiment_file
from fedcm.federation.provision.deal import deal

pytestmark = pytest.mark.federation

SITES = ("a", "b")


def short(path: Path, **changes: Any) -> Path:
    return experiment_file(path, **{"split": {"kind": "iid", "clients": 2}, "rounds": 3} | changes)


def long(path: Path, rounds: int = 20) -> Path:
    """An experiment with time to interrupt it."""
    return short(
        path, rounds=rounds, algorithm={"name": "scaffold"}, client={"epochs": 40, "batch_size": 16, "lr": 0.02}
    )


@pytest.fixture(scope="module")
def up(shared: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    place = tmp_path_factory.mktemp("dealt")
    shared.deal(deal(load_experiment_file(short(place / "short.toml")), SITES, place).files[0].parent, SITES)
    return shared.start(*SITES)


@pytest.fixture(scope="module")
def finished(up: Fleet, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of a finished run."""
    done = up.run(short(tmp_path_factory.mktemp("short") / "short.toml"), "finished")
    assert done.code == 0, done.err + up.collect_output()
    return "finished"


def test_status_shows_sites_and_the_progress_of_runs(up: Fleet, finished: str) -> None:
    answer = up.call("status")
    assert answer.code == 0, answer.err
    assert "connected: a, b" in answer.out
    assert finished in answer.out
    assert "shows how a finished run ended" in answer.out
    printed = json.loads(up.call("status", "--json").out)
    assert printed["sites"] == ["a", "b"]
    assert next(row for row in printed["runs"] if row["run"] == finished)["state"] == "over"
    assert "3/3" in up.call("status", finished).out
    one = json.loads(up.call("status", finished, "--json").out)
    assert [(row["run"], row["state"], row["last"]["round"]) for row in one["runs"]] == [(finished, "finished", 2)]


def test_an_unknown_run_gives_an_error(up: Fleet) -> None:
    for what in ("status", "stop", "resume", "logs", "fetch"):
        answer = up.call(what, "nowhere")
        assert answer.code == 2, what
        assert "has no run 'nowhere'" in answer.err


def test_logs_show_the_start_and_the_end(up: Fleet, finished: str) -> None:
    log = up.call("logs", finished).out
    assert "run finished begins with 2 sites: a, b" in log
    assert "run finished finished" in log


def test_a_report_can_be_made_of_a_fetched_run(up: Fleet, finished: str, tmp_path: Path) -> None:
    fetched = up.call("fetch", finished, "--runs-dir", tmp_path / "runs")
    assert fetched.code == 0, fetched.err
    place = tmp_path / "runs" / finished
    assert bits(place) == bits(up.at_server(finished))
    assert len(lines(place)) == 3
    again = up.call("fetch", finished, "--runs-dir", tmp_path / "runs")
    assert again.code == 2
    assert "exists already" in again.err
    report = fedcm("report", tmp_path / "runs", "-o", tmp_path / "page")
    assert report.code == 0, report.err
    assert finished in (tmp_path / "page" / "index.html").read_text()


def test_a_taken_name_gives_an_error_and_the_existing_run_stays(up: Fleet, finished: str, tmp_path: Path) -> None:
    before = bits(up.at_server(finished))
    answer = up.run(short(tmp_path / "short.toml", seed=2), finished)
    assert answer.code == 2, answer.err
    assert f"the run '{finished}' exists already" in answer.err
    assert "Traceback" not in answer.err
    assert bits(up.at_server(finished)) == before


def test_a_stopped_run_resumes_to_the_same_bits(up: Fleet, tmp_path: Path) -> None:
    experiment = long(tmp_path / "long.toml", rounds=40)
    run = up.follow("run", experiment, "--name", "stopped")
    up.wait_for_round("stopped", 2)
    answer = up.call("resume", "stopped")
    assert answer.code == 2
    assert "is running" in answer.err
    assert up.call("stop", "stopped").code == 0
    assert run.wait() == 1, run.output
    assert "stopped" in run.output
    assert up.rounds("stopped") < 40
    status = json.loads(up.call("status", "stopped", "--json").out)
    assert status["runs"][0]["state"] == "stopped"
    resumed = up.call("resume", "stopped", "--runs-dir", up.folder / "runs")
    assert resumed.code == 0, resumed.err + up.collect_output()
    assert bits(up.folder / "runs" / "stopped") == bits(run_to_end(experiment, tmp_path))


def test_ctrl_c_stops_watching_and_the_run_continues(up: Fleet, tmp_path: Path) -> None:
    run = up.follow("run", long(tmp_path / "long.toml"), "--name", "left-alone")
    up.wait_for_round("left-alone", 1)
    run.process.send_signal(signal.SIGINT)
    assert run.wait() == 130, run.output
    assert "the run continues" in run.output
    assert "Traceback" not in run.output
    until(lambda: (up.at_server("left-alone") / "summary.json").exists(), "the end of the run", up.collect_output)
    until(
        lambda: json.loads(up.call("status", "left-alone", "--json").out)["runs"][0]["state"] == "finished",
        "its state",
    )


def test_a_resume_can_change_only_settings_of_the_federation(up: Fleet, finished: str) -> None:
    answer = up.call("resume", finished, "--set", "client.lr=1")
    assert answer.code == 2
    assert "a resume can change only federation.deadline" in answer.err
