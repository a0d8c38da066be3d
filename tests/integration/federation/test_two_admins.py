"""Two admins at one server: both run experiments, and neither can touch the run of the other."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fleet import ADMIN, OTHER_ADMIN, CommandResult, Fleet, bits, experiment_file, fedcm, until

from fedcm.config.experiment import read_experiment
from fedcm.errors import UserError
from fedcm.federation.admin.session import AdminSession, open_session
from fedcm.federation.kit import read_kit

pytestmark = pytest.mark.federation

Dealt = Callable[..., list[str]]


def test_an_admin_cannot_stop_fetch_or_resume_the_run_of_another_and_both_can_submit(
    fleet: Fleet, dealt: Dealt, tmp_path: Path
) -> None:
    client = {"epochs": 40, "batch_size": 16, "lr": 0.02}
    long = experiment_file(tmp_path / "long.toml", rounds=200, split={"kind": "iid", "clients": 2}, client=client)
    short = experiment_file(tmp_path / "short.toml", split={"kind": "iid", "clients": 2})
    dealt(long, fleet, "a", "b")
    fleet.start("a", "b")
    other_kit = fleet.folder / "admins" / OTHER_ADMIN

    def call(what: str, *words: object) -> CommandResult:
        return fedcm("federation", what, *words, "--kit", other_kit)

    assert fleet.run(long, "first", "--detach").code == 0
    fleet.wait_for_round("first", 1)
    submitted = call("run", short, "--name", "second", "--detach")
    assert submitted.code == 0, submitted.err

    for what in ("stop", "fetch", "resume", "logs"):  # their commands do not find it
        answer = call(what, "first")
        assert (answer.code, f"{OTHER_ADMIN} has no run 'first'" in answer.err) == (2, True), what
    taken = call("run", short, "--name", "first", "--detach")
    assert taken.code == 2, "the name is taken"
    listed = {row["run"]: row for row in json.loads(call("status", "--json").out)["runs"]}
    assert set(listed) == {"first", "second"}
    assert "last" not in listed["first"], "they see names and states, and no results"

    with open_session(read_kit(other_kit)) as session:  # their own program sends the commands without looking
        (first,) = session.list_jobs("first")
        assert first.submitter == ADMIN
        for command in forbidden(session, first.id):
            with pytest.raises(UserError, match=f"{OTHER_ADMIN} is not allowed to do this"):
                command()
        experiment = read_experiment(session_experiment(session, first.id))
    before = fleet.rounds("first")
    fleet.wait_for_round("first", before + 1)

    assert fleet.call("stop", "first").code == 0
    until(lambda: state(fleet, "first") == "stopped", "the end of first", fleet.collect_output)
    rounds, kept = fleet.rounds("first"), (fleet.at_server("first") / "metrics.jsonl").read_bytes()
    until(lambda: (fleet.at_server("second") / "summary.json").exists(), "the end of second", fleet.collect_output)

    with open_session(read_kit(other_kit)) as session:  # a resume is a new job with the name of a run
        job = session.submit_run("first", experiment, resume=True)
        until(lambda: session.get_state(job).startswith("FINISHED"), "the end of the job", fleet.collect_output)
        outcome = session.get_outcome(job)
    assert outcome is not None
    assert (outcome.state, f"only {ADMIN}, who began the run 'first', can resume it" in outcome.why) == ("failed", True)
    assert fleet.rounds("first") == rounds
    assert (fleet.at_server("first") / "metrics.jsonl").read_bytes() == kept

    fetched = call("fetch", "second", "--runs-dir", tmp_path / "runs")
    assert fetched.code == 0, fetched.err
    assert bits(tmp_path / "runs" / "second") == bits(fleet.at_server("second"))
    denied = fleet.call("fetch", "second", "--runs-dir", tmp_path / "other")
    assert denied.code == 2
    assert not (tmp_path / "other" / "second").exists()


def forbidden(session: AdminSession, job: str) -> list[Callable[[], Any]]:
    def download() -> None:
        with session.download(job):
            raise AssertionError("the download was allowed")

    return [
        lambda: session.query_run(job, "state"),
        lambda: session.query_run(job, "stop"),
        lambda: session.query_run(job, "pause"),
        lambda: session.abort(job),
        download,
    ]


def session_experiment(session: AdminSession, job: str) -> dict[str, Any]:
    """All admins see the definitions of jobs."""
    return tomllib.loads(session.get_experiment(job))


def state(fleet: Fleet, run: str) -> str:
    return json.loads(fleet.call("status", run, "--json").out)["runs"][0]["state"]
