"""The command that follows a run: when it takes a job for lost and submits the run again."""

from typing import Any

import pytest
from sites_here import make_experiment, make_federated

from fedcm.config.experiment import to_toml
from fedcm.federation.admin import session, watch
from fedcm.federation.admin.runs import resume_run
from fedcm.federation.admin.session import Job

RUNNING = "RUNNING"


class SilentServer:
    """A session with a server that says that a job is running, but the job does not answer."""

    def __init__(self) -> None:
        self.submitted: list[str] = []

    def get_outcome(self, job: str) -> None:
        return None

    def get_state(self, job: str) -> str:
        return RUNNING

    def list_sites(self) -> list[str]:
        return ["a", "b", "c"]

    def find_newest_job(self, run: str) -> Job:
        return Job("old", run, RUNNING, "", "lead@example.org")

    def abort(self, job: str) -> None:
        pass

    def submit_run(self, run: str, experiment: Any, *, resume: bool) -> str:
        self.submitted.append(run)
        return "new"


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> watch._Watch:
    """A watch that waits for ever for the first answer of a job, and not at all for later ones."""
    monkeypatch.setattr(watch, "_START_TIMEOUT", float("inf"))
    monkeypatch.setattr(watch, "_SILENCE_TIMEOUT", -1.0)
    return watch._Watch("r", make_federated(make_experiment()), "old", lambda line: None, 3)


def test_a_job_that_starts_gets_time(patient: watch._Watch) -> None:
    server: Any = SilentServer()
    assert patient.query(server) is None
    assert server.submitted == []


def test_a_job_of_a_server_that_was_started_again_is_lost_unless_it_answers_soon(patient: watch._Watch) -> None:
    server: Any = SilentServer()
    patient.note_lost_server()
    assert patient.query(server) is None
    assert (server.submitted, patient.job) == (["r"], "new")
    assert patient.query(server) is None
    assert server.submitted == ["r"], "the new job gets time to start"


class ReturningSites(SilentServer):
    """A session with a server that was started again; each question finds one more site."""

    asked = 0

    def list_sites(self) -> list[str]:
        self.asked += 1
        return ["a", "b", "c"][: self.asked]

    def query_run(self, job: str, topic: str) -> None:
        return None

    def get_experiment(self, job: str) -> str:
        return to_toml(make_federated(make_experiment()))

    def submit_run(self, run: str, experiment: Any, *, resume: bool) -> str:
        assert self.list_sites() == ["a", "b", "c"], "the engine includes only the sites that are connected"
        return super().submit_run(run, experiment, resume=resume)


def test_a_run_is_resumed_when_its_sites_are_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_POLL", 0.0)
    server, lines = ReturningSites(), list[str]()
    assert resume_run(server, "r", (), lines.append).job == "new"  # pyright: ignore[reportArgumentType]
    assert (server.submitted, lines) == (["r"], [])


def test_a_run_is_resumed_without_a_site_that_does_not_return(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_GATHER_TIMEOUT", 0.0)
    server, lines = SilentServer(), list[str]()
    monkeypatch.setattr(server, "list_sites", lambda: ["a", "c"])
    for name in ("query_run", "get_experiment"):
        monkeypatch.setattr(server, name, getattr(ReturningSites(), name), raising=False)
    assert resume_run(server, "r", (), lines.append).job == "new"  # pyright: ignore[reportArgumentType]
    assert lines == ["b is not connected; the run resumes without it if the quorum is connected"]
