"""What is removed from a kit: old folders of jobs, jobs of a run with a newer one, client states of finished runs."""

import json
import os
import time
import uuid
from pathlib import Path

import pytest
from made_kits import Root, free_port, make_kit
from sites_here import SITES, InProcessChannel, make_experiment, make_federated, write_kits
from test_restored_backups import run_until
from test_server import parameters, run_all, simulate

from fedcm.errors import UserError
from fedcm.federation.kit import Kit
from fedcm.federation.serve.cleaning import KEPT_JOBS, clean_kit, remove_old_jobs, remove_superseded_jobs
from fedcm.federation.serve.engine_log import EngineLog, is_end_of_job
from fedcm.federation.serve.supervisor import DEFAULT_TIMES, Supervisor
from fedcm.federation.server.state_messages import list_finished_ids
from fedcm.federation.site.finished_runs import mark_finished, remove_finished_states, remove_unfinished_files
from fedcm.federation.terms import read_record

DAY = 24 * 3600.0


def make_jobs(kit: Path, count: int) -> list[str]:
    """Make folders of jobs, the oldest first."""
    names = [str(uuid.uuid4()) for _ in range(count)]
    for age, name in enumerate(reversed(names)):
        (kit / name / "app_a").mkdir(parents=True)
        (kit / name / "log.txt").write_text("x")
        when = time.time() - 60 * age
        os.utime(kit / name, (when, when))
    return names


@pytest.fixture
def site(tmp_path: Path) -> Kit:
    return make_kit(tmp_path / "berlin", "site", Root(), free_port())


def test_only_the_newest_folders_of_ended_jobs_stay(site: Kit) -> None:
    jobs, others = make_jobs(site.path, 9), sorted(path.name for path in site.path.iterdir() if "-" not in path.name)
    running = [f"python worker_process -n {jobs[1]}"]
    assert remove_old_jobs(site.path, running) == sorted({jobs[0], jobs[2], jobs[3]})
    left = sorted(path.name for path in site.path.iterdir())
    assert left == sorted([*others, jobs[1], *jobs[-KEPT_JOBS:]])
    assert remove_old_jobs(site.path, running) == []


def test_links_and_other_names_are_not_removed(site: Kit, tmp_path: Path) -> None:
    make_jobs(site.path, KEPT_JOBS)
    (tmp_path / "precious").mkdir()
    for name in (str(uuid.uuid4()), "my-own-folder"):
        (site.path / name).symlink_to(tmp_path / "precious") if "own" not in name else (site.path / name).mkdir()
        os.utime(site.path / name, (0, 0), follow_symlinks=False)
    assert remove_old_jobs(site.path) == []
    assert (tmp_path / "precious").is_dir()


def store_job(store: Path, run: str, submitted: float, status: str, admin: str = "lead@example.org") -> str:
    job = str(uuid.uuid4())
    (store / job).mkdir(parents=True)
    meta = {"name": run, "submitter_name": admin, "submit_time": submitted, "status": status}
    (store / job / "meta").write_text(json.dumps(meta))
    return job


def test_a_stored_job_is_removed_only_if_it_has_ended_and_its_run_has_a_newer_one(tmp_path: Path) -> None:
    store = tmp_path / "jobs" / "all"
    old = store_job(store, "r", 1.0, "FINISHED:ABNORMAL")
    kept = [
        store_job(store, "r", 2.0, "RUNNING"),
        store_job(store, "r", 3.0, "FINISHED:EXECUTION_EXCEPTION"),  # the newest: a resume reads its experiment
        store_job(store, "r", 0.5, "FINISHED:COMPLETED", "other@example.org"),
        store_job(store, "other", 1.0, "FINISHED:COMPLETED"),
    ]
    (store / str(uuid.uuid4())).mkdir()  # the engine is writing it
    assert remove_superseded_jobs(store) == [old]
    assert {path.name for path in store.iterdir()} > set(kept)
    assert remove_superseded_jobs(tmp_path / "missing") == []


def make_states(states: Path, run: str, *, finished_days_ago: float | None) -> Path:
    folder = states / run
    folder.mkdir(parents=True)
    for name in ("round-000003.safetensors", "round-000004.sealed", "sums.json", ".round-000005.ab.safetensors"):
        (folder / name).write_text("x")
    if finished_days_ago is not None:
        mark_finished(states, [run])
        when = time.time() - finished_days_ago * DAY
        os.utime(folder / "finished", (when, when))
    return folder


def test_states_of_finished_runs_are_removed_after_some_days_and_others_never(site: Kit) -> None:
    states = site.path / "state"
    old = make_states(states, "aa" * 16, finished_days_ago=8)
    make_states(states, "bb" * 16, finished_days_ago=6)
    make_states(states, "cc" * 16, finished_days_ago=None)
    for name in ("sums.json", "masked.json"):  # what the site revealed in all runs
        (states / name).write_text("{}")
        os.utime(states / name, (0, 0))
    os.utime(states / ("cc" * 16), (0, 0))
    assert remove_finished_states(states, 7) == ["aa" * 16]
    assert sorted(path.name for path in old.iterdir() if path.name[0] != ".") == ["finished", "sums.json"]
    assert remove_finished_states(states, 7) == []
    assert remove_finished_states(states, 0) == ["bb" * 16]
    assert len(list((states / ("cc" * 16)).glob("round-*"))) == 2
    remove_unfinished_files(states)
    assert list(states.glob("*/.round-*")) == []
    assert sorted(path.name for path in states.glob("*.json")) == ["masked.json", "sums.json"]


def test_a_run_id_that_is_a_path_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "elsewhere").mkdir()
    mark_finished(tmp_path / "state", ["../elsewhere", "..", "", "ab" * 16])
    assert list(tmp_path.rglob("finished")) == []


@pytest.mark.parametrize(("days", "left"), [("days = 0", 0), ("", 2), ("days = [", 2)])
def test_the_operator_chooses_after_how_many_days(days: str, left: int, site: Kit) -> None:
    make_states(site.path / "state", "aa" * 16, finished_days_ago=1)
    (site.path / "site.toml").write_text(f'[data]\nsource = "data.npz"\n[storage]\n{days}\n')
    said = list(clean_kit(site, idle=False))
    assert len(list(site.path.glob("state/*/round-*"))) == left
    assert said == ([] if left else [f"removed the client states of 1 finished run: {'aa' * 16}"])


def test_the_command_says_what_it_removed(site: Kit) -> None:
    said: list[str] = []
    jobs = make_jobs(site.path, KEPT_JOBS + 1)
    Supervisor(site, [], said.append, DEFAULT_TIMES, 0)._clean_up()
    assert said == [f"removed 1 folder of ended jobs from the kit: {jobs[0]}"]
    assert not (site.path / jobs[0]).exists()


def test_the_end_of_a_job_is_seen_in_the_engines_log(site: Kit) -> None:
    line = "2026-01-01 00:00:00,000 - ClientExecutor - INFO - run (x): child worker process finished with RC 0"
    shown = EngineLog(site).filter_line(line)
    assert shown is not None
    assert is_end_of_job(shown)
    assert not is_end_of_job("Started run: x for clients: a")


def test_sites_hear_which_runs_have_finished_and_a_resume_takes_it_back(tmp_path: Path) -> None:
    """A site that missed the end of a run hears of it with the next run."""
    chosen = make_experiment("scaffold", 3, federation={"quorum": 0.6})
    folder = write_kits(chosen, tmp_path)
    half = run_until(folder, chosen, 2)
    assert list(folder.glob("*/state/*/finished")) == []
    channel = InProcessChannel(folder, make_federated(chosen))
    first = run_all(channel, chosen, name="first")
    marks = {path.parent for path in folder.glob("*/state/*/finished")}
    assert marks == {folder / site / "state" / read_record(first).id for site in SITES}
    (folder / "c" / "state" / read_record(first).id / "finished").unlink()  # as if it had been absent
    assert parameters(run_all(InProcessChannel(folder, make_federated(chosen)), chosen, resume=True)) == simulate(
        chosen, tmp_path
    )
    assert len(list(folder.glob("*/state/*/finished"))) == 6
    assert list_finished_ids(folder / "server" / "runs") == [read_record(half).id, read_record(first).id]


def test_a_finished_run_that_is_restored_from_a_backup_keeps_its_states(tmp_path: Path) -> None:
    chosen = make_experiment("scaffold", 4)
    folder = write_kits(chosen, tmp_path)
    run = run_all(InProcessChannel(folder, make_federated(chosen)), chosen)
    identity = read_record(run).id
    for file in ("manifest.json", "summary.json", "checkpoints/round-000004.json", "checkpoints/round-000003.json"):
        (run / file).unlink()
    asked: list[bool] = []

    def look(site: str, fields: dict, arrays: dict) -> tuple[dict, dict]:
        asked.append((folder / site / "state" / identity / "finished").exists())
        return fields, arrays

    run_all(InProcessChannel(folder, make_federated(chosen), look), chosen, resume=True)
    assert asked == [False] * 6, "two rounds of three sites: the run is in progress again"


def test_a_damaged_run_does_not_count_as_finished(tmp_path: Path) -> None:
    chosen = make_experiment("fedcm", 1)
    folder = write_kits(chosen, tmp_path)
    run = run_all(InProcessChannel(folder, make_federated(chosen)), chosen)
    (run / "summary.json").write_text("{}")
    assert list_finished_ids(folder / "server" / "runs") == []
    with pytest.raises(UserError):
        run_all(InProcessChannel(folder, make_federated(chosen)), chosen, resume=True)
