"""What the server's controller publishes is signed, and what it says and counts is in the audit log."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from nvflare.fuel.utils.fobs import fobs
from test_audit import Server

from fedcm.errors import UserError
from fedcm.federation.admin.results import fetch_run
from fedcm.federation.outcome import RESULT
from fedcm.federation.server.alarms import SiteAlarm
from fedcm.federation.server.controller import FederatedTraining
from fedcm.federation.trust.manifest import verify_manifest


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setattr(fobs, "Packer", fobs.Packer)  # the controller limits what its process decodes
    return Server(tmp_path / "server")


@pytest.fixture
def job(server: Server, tmp_path: Path) -> Path:
    """The folder of a job whose run has finished two rounds."""
    run = server.folder / "runs" / "r"
    run.mkdir(parents=True)
    (run / "model.safetensors").write_bytes(b"weights")
    (run / "experiment.toml").write_text("rounds = 2")
    controller = FederatedTraining("r", "rounds = 2")
    controller.kit = server.folder
    controller._mark_opened()
    controller._delta = 1e-5
    controller._update(state="running", sites=["a", "b", "c"])
    for round in range(2):
        metrics = {"round": round, "clients": [0, 2], "missed": ["b"], "epsilon": 0.5 * (round + 1)}
        controller._update(metrics=metrics)
        controller._audit("round", **controller._describe_round(metrics))
    controller._say("round 1: b does not count: its loss is nan")
    controller._update(state="finished")
    publish(controller, tmp_path / "job")
    return tmp_path / "job"


def publish(controller: FederatedTraining, job: Path) -> None:
    workspace = SimpleNamespace(get_run_dir=lambda number: str(job))
    engine = SimpleNamespace(get_workspace=lambda: workspace)
    controller._publish(SimpleNamespace(get_engine=lambda: engine, get_job_id=lambda: "1"))  # pyright: ignore


def read_events(server: Server) -> list[dict[str, Any]]:
    return [json.loads(json.loads(line)["record"]) for line in server.lines]


def test_the_audit_log_says_whose_reports_counted_and_who_was_refused(server: Server, job: Path) -> None:
    assert server.verify().problem == ""
    rounds = [event for event in read_events(server) if event["event"] == "round"]
    assert [(event["round"], event["counted"], event["missed"], event["epsilon"]) for event in rounds] == [
        (0, ["a", "c"], ["b"], 0.5),
        (1, ["a", "c"], ["b"], 1.0),
    ]
    assert [event["line"][20:] for event in read_events(server) if event["event"] == "log"] == [
        "round 1: b does not count: its loss is nan"
    ]


def test_published_files_are_signed(server: Server, job: Path) -> None:
    signed = verify_manifest(job / RESULT, server.root.pem)
    assert (signed["run"], signed["sites"], signed["rounds"]) == ("r", ["a", "b", "c"], 2)
    assert {"model.safetensors", "experiment.toml", "outcome.json", "federation.log"} == set(signed["files"])


def test_the_spent_privacy_is_signed_and_in_the_audit_log(server: Server, job: Path) -> None:
    spent = {"epsilon": 1.0, "delta": 1e-5}
    assert verify_manifest(job / RESULT, server.root.pem)["privacy"] == spent
    *_, published = read_events(server)
    assert published["event"] == "published"
    assert {key: published[key] for key in spent} == spent


def test_a_run_that_is_resumed_at_its_end_keeps_its_spent_privacy(server: Server, job: Path, tmp_path: Path) -> None:
    line = {"round": 4, "clients": [0], "epsilon": 2.5}
    (server.folder / "runs" / "r" / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    controller = FederatedTraining("r", "rounds = 5", resume=True)
    controller.kit, controller._delta = server.folder, 1e-5
    controller._mark_opened()
    controller._update(state="finished")
    publish(controller, tmp_path / "again")
    signed = verify_manifest(tmp_path / "again" / RESULT, server.root.pem)
    assert (signed["rounds"], signed["privacy"]) == (5, {"epsilon": 2.5, "delta": 1e-5})


def make_resumed(server: Server) -> FederatedTraining:
    controller = FederatedTraining("r", "rounds = 5", resume=True)
    controller.kit, controller._delta = server.folder, 1e-5
    controller._update(sites=["a", "b", "c"])
    return controller


def test_a_resume_appends_the_rounds_that_a_killed_server_did_not_write_to_the_audit_log(
    server: Server, job: Path
) -> None:
    lines = [{"round": round, "clients": [0, 2], "missed": ["b"], "epsilon": 0.5 * (round + 1)} for round in range(3)]
    for _ in range(2):  # the second resume finds nothing missing
        make_resumed(server)._complete_audit(lines)
    rounds = [event for event in read_events(server) if event["event"] == "round"]
    assert [(event["round"], event.get("appended_at_resume")) for event in rounds] == [(0, None), (1, None), (2, True)]
    assert (rounds[-1]["counted"], rounds[-1]["epsilon"], rounds[-1]["run"]) == (["a", "c"], 1.5, "r")
    assert server.verify().problem == ""


def test_rounds_of_an_earlier_run_of_the_same_name_do_not_stand_for_those_of_this_one(
    server: Server, job: Path
) -> None:
    make_resumed(server)._complete_audit([])  # a new run begins
    make_resumed(server)._complete_audit([{"round": 0, "clients": [0, 2], "missed": ["b"], "epsilon": 0.5}])
    assert [event["event"] for event in read_events(server)][-2:] == ["began", "round"]


def test_a_repeated_round_that_counted_other_sites_is_appended(server: Server, job: Path) -> None:
    repeated = {"round": 1, "clients": [0, 1, 2], "missed": [], "epsilon": 1.0}
    make_resumed(server)._complete_audit([{"round": 0, "clients": [0, 2], "missed": ["b"], "epsilon": 0.5}, repeated])
    last = read_events(server)[-1]
    assert (last["round"], last["counted"], last["appended_at_resume"]) == (1, ["a", "b", "c"], True)


def test_an_alarm_about_a_site_is_an_alarm_in_the_audit_log(server: Server, job: Path) -> None:
    controller = make_resumed(server)
    controller._say(SiteAlarm("b", "it moves the mean more than all other sites together (influence 0.81)", 3))
    event = read_events(server)[-1]
    assert (event["event"], event["site"], event["run"]) == ("alarm", "b", "r")
    assert (
        server.verify()
        .alarms[0]
        .endswith("run r: round 3: look at b: it moves the mean more than all other sites together (influence 0.81)")
    )
    assert "round 3: ALARM: look at b: " in (server.folder / "logs" / "r.log").read_text()


class Session:
    """An admin's session with a server that gives out one job."""

    def __init__(self, job: Path, root: Path) -> None:
        self.kit, self.job = SimpleNamespace(root=root), job

    def find_newest_job(self, run: str) -> Any:
        return SimpleNamespace(id="1")

    def download(self, number: str) -> Any:
        from contextlib import nullcontext

        return nullcontext(self.job)


@pytest.mark.parametrize("spoiled", [False, True])
def test_a_fetch_takes_only_what_the_server_signed(server: Server, job: Path, tmp_path: Path, spoiled: bool) -> None:
    root = tmp_path / "root.pem"
    root.write_bytes(server.root.pem)
    session: Any = Session(job, root)
    if not spoiled:
        assert (fetch_run(session, "r", tmp_path / "runs", print, replace=False) / "model.safetensors").exists()
        return
    (job / RESULT / "model.safetensors").write_bytes(b"other weights")
    with pytest.raises(UserError, match="not the file that the server signed"):
        fetch_run(session, "r", tmp_path / "runs", print, replace=False)
    assert not (tmp_path / "runs" / "r").exists()
