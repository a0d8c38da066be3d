"""Who may connect: a copy of a site's kit, removed sites, and a server with a new certificate."""

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fleet import ADMIN, CONNECTED, Fleet, Running, bits, experiment_file, fedcm, lines, until
from scenes import run_to_end

pytestmark = pytest.mark.federation

Dealt = Callable[..., list[str]]
SITES = ("a", "b", "c")


def read_audit(fleet: Fleet) -> list[dict[str, Any]]:
    file = fleet.server / "audit.jsonl"
    found = file.read_text().splitlines() if file.exists() else []
    return [json.loads(json.loads(line)["record"]) for line in found]


def read_alarms(fleet: Fleet) -> list[str]:
    return [event["what"] for event in read_audit(fleet) if event["event"] == "alarm"]


def list_connected(fleet: Fleet) -> list[str]:
    answer = fleet.call("status", "--json")
    assert answer.code == 0, answer.err + fleet.collect_output()
    return json.loads(answer.out)["sites"]


def start_copy(fleet: Fleet, name: str, folder: Path) -> Running:
    """Start a second process with a copy of a site's kit."""
    shutil.copytree(fleet.site(name), folder, ignore=shutil.ignore_patterns(".lock", "tmp"))
    return Running(["federation", "site", folder], fleet.folder / "copy.out")


def test_a_second_process_with_a_sites_certificate_is_refused_and_the_first_one_counts(
    fleet: Fleet, dealt: Dealt, tmp_path: Path
) -> None:
    experiment = experiment_file(tmp_path / "e.toml", rounds=6)
    settings = dealt(experiment, fleet, *SITES)
    fleet.start(*SITES)
    first = fleet.running["c"].process.pid
    copy = start_copy(fleet, "c", tmp_path / "copy")
    shutil.copyfile(fleet.site("a") / "data.npz", tmp_path / "copy" / "data.npz")  # other data, as an attacker has
    sentence = "a second process with the certificate of c was refused; the first one stays"
    until(lambda: sentence in read_alarms(fleet), "the alarm", fleet.collect_output)
    assert f"ALARM: {sentence}" in fleet.running["server"].output
    done = fleet.run(experiment, "r", *settings)
    assert done.code == 0, done.err + fleet.collect_output()
    assert CONNECTED not in copy.output
    assert copy.process.poll() is None, "it still tries"
    assert fleet.running["c"].process.pid == first
    assert all(line["clients"] == [0, 1, 2] for line in lines(fleet.at_server("r")))
    assert bits(fleet.folder / "runs" / "r") == bits(run_to_end(experiment, tmp_path / "simulated", "r"))
    fleet.running["c"].kill()  # when the first one is gone, the other one is the site
    copy.wait_for(CONNECTED)


def test_a_killed_site_is_taken_in_again_without_an_alarm(fleet: Fleet) -> None:
    fleet.start("a")
    for _ in range(2):
        fleet.running["a"].kill()
        fleet.start_site("a")
    until(lambda: list_connected(fleet) == ["a"], "a is connected", fleet.collect_output)
    assert read_alarms(fleet) == []


def test_a_removed_site_is_disconnected_without_a_restart_and_stays_out(
    fleet: Fleet, dealt: Dealt, tmp_path: Path
) -> None:
    links = {"classes": 10, "quorum": 0.6, "wait": 2}
    client = {"epochs": 40, "batch_size": 16, "lr": 0.02}
    experiment = experiment_file(tmp_path / "e.toml", rounds=5, federation=links, client=client)
    dealt(experiment, fleet, *SITES)
    fleet.start(*SITES)
    run = fleet.follow("run", experiment, "--name", "r")
    fleet.wait_for_round("r", 1)
    removed = fedcm("federation", "remove", "c", "--authority", fleet.folder / "authority")
    assert removed.code == 0, removed.err
    until(lambda: any(e["event"] == "disconnected" and e["name"] == "c" for e in read_audit(fleet)), "its end")
    assert run.wait() == 0, run.output + fleet.collect_output()
    rounds = lines(fleet.at_server("r"))
    assert rounds[0]["clients"] == [0, 1, 2]
    assert rounds[-1]["clients"] == [0, 1]
    assert list_connected(fleet) == ["a", "b"]
    fleet.running["c"].kill()
    again = fleet.start_site("c", wait=False)  # with its real kit
    until(lambda: "c was refused: its certificate was removed" in read_alarms(fleet), "the alarm")
    time.sleep(5)
    assert CONNECTED not in again.output
    assert list_connected(fleet) == ["a", "b"]


def test_a_site_that_was_taken_out_of_the_plan_cannot_connect(fleet: Fleet) -> None:
    plan = fleet.folder / "authority" / "plan.toml"
    plan.write_text(plan.read_text().replace('    "c",\n', ""))
    renewed = fedcm("federation", "renew", fleet.folder)  # all kits of the plan
    assert renewed.code == 0, renewed.err
    fleet.start("a")
    out = fleet.start_site("c", wait=False)  # with its real kit, whose certificate is valid
    until(lambda: "c was refused: it is not a member" in read_alarms(fleet), "the alarm", fleet.collect_output)
    assert CONNECTED not in out.output
    assert list_connected(fleet) == ["a"]


def test_a_removed_admin_cannot_log_in(fleet: Fleet) -> None:
    fleet.start_server()
    assert list_connected(fleet) == []
    removed = fedcm("federation", "remove", ADMIN, "--authority", fleet.folder / "authority", "--keep-place")
    assert removed.code == 0, removed.err
    until(lambda: any(event["event"] == "members" for event in read_audit(fleet)), "the new list")
    answer = fleet.call("status")
    assert answer.code == 2, answer.out
    assert len(answer.err.strip().splitlines()) == 1, answer.err


def test_sites_log_in_again_after_the_server_has_a_new_certificate(fleet: Fleet, dealt: Dealt, tmp_path: Path) -> None:
    experiment = experiment_file(tmp_path / "e.toml", split={"kind": "iid", "clients": 2})
    dealt(experiment, fleet, "a", "b")
    fleet.start("a", "b")
    fleet.running["server"].interrupt()
    assert fleet.running["server"].wait() == 0
    renewed = fedcm("federation", "renew", fleet.folder, "--only", "localhost")
    assert renewed.code == 0, renewed.err
    fleet.start_server()
    for site in ("a", "b"):
        fleet.running[site].wait_for("the server has ended the login")
        fleet.running[site].wait_for(CONNECTED, times=2)
    done = fleet.run(experiment, "r")
    assert done.code == 0, done.err + fleet.collect_output()
