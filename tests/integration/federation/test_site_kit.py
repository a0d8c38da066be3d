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
    experiment = experiment_file(tmp_path / "e.toml", rounds=6, split={"kind": "iid", "clients": 2})
    settings = dealt(experiment, fleet, "a", "b")
    fleet.start("a", "b")
    for folder in (fleet.site("a"), fleet.site("a") / "startup"):
        (folder / "canary.txt").write_text(SECRET)
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("hostile_cell.py")), str(fleet.site("c")), "r"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    done = fleet.run(experiment, "r", "--sites", "a,b", *settings)
    answers, errors = process.communicate(timeout=180)
    assert done.code == 0, done.err + fleet.collect_output()
    attacks = json.loads(answers) if answers else pytest.fail(errors)
    assert attacks.pop("own heartbeat")[0] == "ok", "it is logged in, and its messages reach the server"
    assert {what: code for what, (code, _) in attacks.items() if code == "ok"} == {}
    assert SECRET not in answers
    assert any(alarm.startswith("a message of c was refused: ") for alarm in read_alarms(fleet))
    assert [line["missed"] for line in lines(fleet.at_server("r"))] == [[]] * 6
    assert bits(fleet.folder / "runs" / "r") == bits(run_to_end(experiment, tmp_path / "simulated", "r"))
    assert {"a", "b"} <= set(list_connected(fleet))
