"""What a hostile holder of one site's kit can do to the others through the server: nothing, and an alarm names it."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fleet import Fleet, experiment_file, lines
from test_gate import list_connected, read_alarms

pytestmark = pytest.mark.federation

Dealt = Callable[..., list[str]]
SECRET = "what nobody but a may read"


def test_a_site_reaches_no_other_site_and_no_run_through_the_server(fleet: Fleet, dealt: Dealt, tmp_path: Path) -> None:
    experiment = experiment_file(tmp_path / "e.toml", rounds=5000, split={"kind": "iid", "clients": 2})
    settings = dealt(experiment, fleet, "a", "b")
    fleet.start("a", "b")
    for folder in (fleet.site("a"), fleet.site("a") / "startup"):
        (folder / "canary.txt").write_text(SECRET)
    command = fleet.follow("run", experiment, "--name", "r", "--sites", "a,b", *settings)
    fleet.wait_for_round("r", 1)
    (job,) = (path.name for path in (fleet.server / "jobs" / "all").iterdir())
    program = [sys.executable, str(Path(__file__).with_name("hostile_cell.py")), str(fleet.site("c")), job]
    hostile = subprocess.run(program, capture_output=True, text=True, timeout=180, check=False)
    attacks = json.loads(hostile.stdout) if hostile.stdout else pytest.fail(hostile.stderr)
    assert attacks.pop("own heartbeat")[0] == "ok", "it is logged in, and its messages reach the server"
    assert {what: code for what, (code, _) in attacks.items() if code == "ok"} == {}
    assert SECRET not in hostile.stdout
    assert any(alarm.startswith("a message of c was refused: ") for alarm in read_alarms(fleet))
    fleet.wait_for_round("r", fleet.rounds("r") + 2)  # the run is still in progress
    assert command.process.poll() is None, command.output + fleet.collect_output()
    assert all(line["missed"] == [] for line in lines(fleet.at_server("r")))
    assert {"a", "b"} <= set(list_connected(fleet))
    assert fleet.call("stop", "r").code == 0
