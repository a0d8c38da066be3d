"""What a hostile holder of one site's kit can do to the others through the server: nothing, and an alarm names it."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fleet import Fleet, bits, experiment_file, lines
from scenes import run_to_end
from test_gate import list_connected, read_alarms

pytestmark = pytest.mark.federation

Dealt = Callable[..., list[str]]
SECRET = "what nobody but a may read"


def test_a_site_reaches_no_other_site_and_no_run_through_the_server(fleet: Fleet, dealt: Dealt, tmp_path: Path) -> None:
    client = {"epochs": 10, "batch_size": 16, "lr": 0.02}
    experiment = experiment_file(tmp_path / "e.toml", rounds=30, split={"kind": "iid", "clients": 2}, client=client)
    settings = dealt(experiment, fleet, "a", "b")
    fleet.start("a", "b")
    for folder in (fleet.site("a"), fleet.site("a") / "startup"):
        (folder / "canary.txt").write_text(SECRET)
    command = fleet.follow("run", experiment, "--name", "r", "--sites", "a,b", *settings)
    fleet.wait_for_round("r", 1)
    (job,) = (path.name for path in (fleet.server / "jobs" / "all").iterdir())
    program = [sys.executable, str(Path(__file__).with_name("hostile_cell.py")), str(fleet.site("c")), job]
    hostile = subprocess.run(program, capture_output=True, text=True, timeout=180, check=False)
    assert fleet.rounds("r") < 30, "the run was in progress all the time"
    attacks = json.loads(hostile.stdout) if hostile.stdout else pytest.fail(hostile.stderr)
    assert attacks.pop("own heartbeat")[0] == "ok", "it is logged in, and its messages reach the server"
    assert {what: code for what, (code, _) in attacks.items() if code == "ok"} == {}
    assert SECRET not in hostile.stdout
    assert any(alarm.startswith("a message of c was refused: ") for alarm in read_alarms(fleet))
    assert command.process.wait(timeout=300) == 0, command.output + fleet.collect_output()
    assert [line["missed"] for line in lines(fleet.at_server("r"))] == [[]] * 30
    assert bits(fleet.folder / "runs" / "r") == bits(run_to_end(experiment, tmp_path / "simulated", "r"))
    assert {"a", "b"} <= set(list_connected(fleet))
