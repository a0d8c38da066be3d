"""The code, the commands and the files of the guide to stragglers, unequal work and availability."""

import json
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest
from test_code_blocks import ROOT, blocks, run_python

from fedcm.config.experiment import load_experiment_file
from fedcm.core.conditions.availability import Trace, list_available
from fedcm.data.work.amounts import WORK, FileWork

GUIDE = "docs/guides/heterogeneity.md"


def test_experiment_of_the_guide_is_the_bundled_one() -> None:
    (experiment,) = blocks(GUIDE, "toml")
    assert tomllib.loads(experiment) == tomllib.loads((ROOT / "experiments" / "stragglers.toml").read_text())


@pytest.mark.slow
def test_comparison_of_the_guide_runs_on_small_data(tmp_path: Path) -> None:
    """Three algorithms meet the same conditions, and the late ones do not report."""
    (experiment,) = blocks(GUIDE, "toml")
    (tmp_path / "stragglers.toml").write_text(experiment)
    drop, partial = re.findall(r"^    fedcm (compare stragglers .*)$", (ROOT / GUIDE).read_text(), re.M)
    assert "--set" not in drop
    assert "stragglers.policy=partial" in partial
    lines = {}
    for name in ("fedavg", "fednova", "fedcm"):
        words = ["run", "stragglers.toml", "--set", f"algorithm.name={name}", "--set", "rounds=3", "--name", name]
        run_python(tmp_path, "-m", "fedcm", *words, "--workers", "1")
        text = (tmp_path / "runs" / name / "metrics.jsonl").read_text()
        lines[name] = [json.loads(line) for line in text.splitlines()]
    conditions = [
        [(line["clients"], line["steps"], line["missed"], line["available"], line["simulated_seconds"]) for line in own]
        for own in lines.values()
    ]
    assert conditions[0] == conditions[1] == conditions[2]
    assert all(line["cohort"] + line["missed"] == 10 for line in lines["fedcm"])
    assert sum(line["missed"] for line in lines["fedcm"]) > 0
    summary = json.loads((tmp_path / "runs" / "fedcm" / "summary.json").read_text())
    assert summary["missed_reports"] == sum(line["missed"] for line in lines["fedcm"])


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["drop", "partial"])
def test_numbers_of_the_guide_are_those_of_the_runs(policy: str, tmp_path: Path) -> None:
    table = (ROOT / GUIDE).read_text()
    rows = re.findall(rf"^\| `{policy}` \| (\w+) \| ([\d.]+) % \| (\d+) \| ([\d,]+) \|", table, re.M)
    assert len(rows) == 3
    for name, accuracy, missed, seconds in rows:
        words = ["run", "stragglers", "--set", f"algorithm.name={name.lower()}", "--set", f"stragglers.policy={policy}"]
        run_python(tmp_path, "-m", "fedcm", *words, "--name", name, "--workers", "1")
        summary = json.loads((tmp_path / "runs" / name / "summary.json").read_text())
        assert 100 * summary["accuracy"]["mean_last"] == pytest.approx(float(accuracy), abs=1.0)
        assert summary["missed_reports"] == int(missed)
        assert round(summary["simulated_seconds"]) == int(seconds.replace(",", ""))


def test_files_of_the_guide_are_read_as_it_says(tmp_path: Path) -> None:
    steps, trace = blocks(GUIDE, "text")
    (tmp_path / "steps.csv").write_text(steps)
    (tmp_path / "trace.csv").write_text(trace)
    work = FileWork(str(tmp_path / "steps.csv"), default=5)
    assert [work.draw_amount(0, round, 0) for round in (0, 3, 4)] == [8, 2, 8]
    assert [work.draw_amount(0, 0, client) for client in (1, 2)] == [4, 5]
    day = [list_available(Trace(str(tmp_path / "trace.csv"), period=24), 3, 0, round).tolist() for round in range(48)]
    assert np.flatnonzero([0 in own for own in day]).tolist() == [*range(8), *range(20, 32), *range(44, 48)]
    assert all(2 not in own for own in day)


def test_lines_of_unequal_work_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (experiment,) = blocks(GUIDE, "toml")
    lines = re.findall(r"^    ((?:steps|epochs) = \{.*\})", (ROOT / GUIDE).read_text(), re.M)
    assert len(lines) == 4
    monkeypatch.chdir(tmp_path)
    for line in lines:
        (tmp_path / "one.toml").write_text(re.sub(r"^steps = .*$", line, experiment, flags=re.M))
        client = load_experiment_file(tmp_path / "one.toml").client
        work = client.steps or client.epochs
        assert type(work) in WORK.values()
        if isinstance(work, FileWork):
            assert work == FileWork(str(tmp_path / "steps.csv"), default=5)


def test_python_of_the_guide_runs_as_written(tmp_path: Path) -> None:
    (code,) = blocks(GUIDE, "python")
    (tmp_path / "example.py").write_text(code)
    assert re.search(r"^\d+ reports missed .*\n\d+\.\d+ simulated seconds$", run_python(tmp_path, "example.py"), re.M)
