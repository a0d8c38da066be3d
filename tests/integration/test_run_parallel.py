"""Several runs with one command: missing runs start, stopped runs resume, finished runs stay unchanged."""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scenes import load_summary, read_lines, resume_run, run_and_stop_after, run_to_end

from fedcm.config.experiment import read_experiment
from fedcm.config.overrides import read_table
from fedcm.runs.evidence.manifest import write_manifest
from fedcm.runs.folder import RunFolder
from fedcm.sweeps.estimate import estimate_tasks
from fedcm.sweeps.grid import expand_grid
from fedcm.sweeps.run_parallel import run_parallel
from fedcm.sweeps.tasks import make_tasks

Write = Callable[..., Path]
Fedcm = Callable[..., Any]
BROKEN = """
import torch

class Net(torch.nn.Linear):
    def __init__(self, width):
        super().__init__(6, 4)
        self.calls, self.width = 0, width

    def forward(self, x):
        self.calls += 1
        if self.width == 2 and self.calls > 20:
            raise RuntimeError("out of luck")
        return super().forward(x)
"""


@pytest.mark.slow
def test_a_comparison_starts_missing_runs_and_keeps_finished_ones(
    experiment: Write, fedcm: Fedcm, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    words = ("compare", experiment(rounds=3, **{"for": {"fedadam": {"server": {"lr": 0.1}}}}), "--runs-dir", runs)
    assert fedcm(*words, "--algorithms", "fedadam").code == 0
    assert read_experiment(read_table(runs / "small-fedadam-seed3" / "experiment.toml")).server.lr == 0.1
    before = (runs / "small-fedadam-seed3" / "summary.json").stat().st_mtime_ns
    answer = fedcm(*words, "--algorithms", "fedadam,fedcm", "--seeds", 2)
    assert answer.code == 0, answer.err
    assert "1 of 4 runs is finished already" in answer.err
    assert (runs / "small-fedadam-seed3" / "summary.json").stat().st_mtime_ns == before
    assert sorted(path.name for path in runs.iterdir() if path.is_dir()) == [
        *("small-fedadam-seed3", "small-fedadam-seed4", "small-fedcm-seed3", "small-fedcm-seed4", "small-report"),
    ]
    assert "±" in answer.out
    assert (runs / "small.png").read_bytes().startswith(b"\x89PNG")
    answer_in_json = fedcm(*words, "--algorithms", "fedadam,fedcm", "--json")
    assert set(json.loads(answer_in_json.out)) == {"fedadam", "fedcm"}


@pytest.mark.slow
def test_many_runs_have_one_picture_per_table(experiment: Write, fedcm: Fedcm, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    words = ("compare", experiment(rounds=2), "--runs-dir", runs, "--algorithms", "fedavg")
    assert fedcm(*words).code == 0
    assert (runs / "small.png").exists()
    first = runs / "small-fedavg-seed3"
    for seed in range(4, 12):
        other = runs / f"small-fedavg-seed{seed}"
        shutil.copytree(first, other)
        for name in ("experiment.toml", "summary.json"):
            text = (other / name).read_text()
            (other / name).write_text(
                text.replace("seed = 3", f"seed = {seed}").replace('"seed": 3', f'"seed": {seed}')
            )
        write_manifest(other)
    answer = fedcm(*words, "--seeds", 9)
    assert "9 of 9 runs are finished already" in answer.err
    assert f"curves: {runs / 'small-report' / 'figures'}" in answer.out
    assert list((runs / "small-report" / "figures").glob("*-accuracy.png"))


def test_a_run_of_a_comparison_has_the_bits_of_the_same_run_alone(
    experiment: Write, fedcm: Fedcm, tmp_path: Path
) -> None:
    path, runs = experiment(rounds=4), tmp_path / "runs"
    reference = run_to_end(path, tmp_path / "alone")
    assert fedcm("compare", path, "--algorithms", "fedcm", "--runs-dir", runs, "--workers", 2).code == 0
    assert read_lines(runs / "small-fedcm-seed3") == read_lines(reference)


@pytest.mark.slow
@pytest.mark.parametrize(
    "number", [signal.SIGINT, *(pytest.param(n, marks=pytest.mark.slow) for n in (signal.SIGTERM, signal.SIGHUP))]
)
def test_an_interrupted_comparison_resumes_to_the_same_bits(
    experiment: Write, tmp_path: Path, number: signal.Signals
) -> None:
    words, folder = write_two_long_runs(experiment, tmp_path, rounds=250)
    process = start_and_wait_for_rounds(words, folder)
    process.send_signal(number)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "the same command continues" in err
    assert_resumes_to_the_same_bits(words, folder, experiment, rounds=250)


@pytest.mark.slow
def test_killing_a_comparison_ends_its_runs_and_the_same_command_resumes(experiment: Write, tmp_path: Path) -> None:
    words, folder = write_two_long_runs(experiment, tmp_path)
    process = start_and_wait_for_rounds(words, folder)
    process.kill()
    process.wait()
    others = [RunFolder(path.parent) for path in folder.parent.glob("*/experiment.toml")]
    assert others
    wait_until(lambda: not any(other.is_locked() for other in others))
    assert not (folder / "summary.json").exists(), "the run ended before its last round"
    assert_resumes_to_the_same_bits(words, folder, experiment)


@pytest.mark.slow
def test_a_restarted_comparison_waits_for_runs_that_are_still_ending(experiment: Write, tmp_path: Path) -> None:
    words, folder = write_two_long_runs(experiment, tmp_path)
    process = start_and_wait_for_rounds(words, folder)
    process.kill()
    assert_resumes_to_the_same_bits(words, folder, experiment)


@pytest.mark.slow
@pytest.mark.parametrize("fresh", [False, True])
def test_a_comparison_waits_for_a_locked_folder_and_says_so(experiment: Write, tmp_path: Path, fresh: bool) -> None:
    path, runs = experiment(rounds=6), tmp_path / "runs"
    folder = run_and_stop_after(3, path, runs, "small-fedcm-seed3")
    words = [sys.executable, "-m", "fedcm", "compare", str(path), "--algorithms", "fedcm,fedavg", "--workers", "1"]
    words += ["--runs-dir", str(runs), *(["--fresh"] if fresh else [])]
    with RunFolder(folder).hold_lock():
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        wait_until((runs / "small-fedavg-seed3" / "summary.json").exists)  # the other run does not wait
        assert process.poll() is None
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert err.count("small-fedcm-seed3 is in progress in another process; waiting") == 1
    assert read_lines(folder) == read_lines(run_to_end(path, runs))


def test_a_run_that_another_process_has_finished_is_not_repeated(experiment: Write, tmp_path: Path) -> None:
    path, runs = experiment(rounds=6), tmp_path / "runs"
    folder = run_and_stop_after(3, path, runs, "small-fedcm-seed3")
    (task,) = make_tasks(expand_grid(path, algorithms=["fedcm"]), runs)
    assert task.outcome == "stopped"
    resume_run(folder)
    before = (folder / "summary.json").stat().st_mtime_ns
    assert [one.outcome for one in run_parallel([task], None, jobs=1, workers=1) if one is not None] == ["finished"]
    assert (folder / "summary.json").stat().st_mtime_ns == before


# takes seconds longer than a run needs to notice that the command is gone
LONG = {"rounds": 800, "checkpoints": {"every": 7}}


def write_two_long_runs(experiment: Write, tmp_path: Path, **changes: Any) -> tuple[list[str], Path]:
    """Return a command that runs two long runs, and the folder of the second."""
    path, runs = experiment(**(LONG | changes)), tmp_path / "runs"
    words = [sys.executable, "-m", "fedcm", "compare", str(path), "--algorithms", "fedavg,scaffold", "--workers", "2"]
    return [*words, "--runs-dir", str(runs)], runs / "small-scaffold-seed3"


def start_and_wait_for_rounds(words: list[str], folder: Path) -> subprocess.Popen[str]:
    """Start the command, and wait until the run in `folder` has some rounds."""
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    metrics = folder / "metrics.jsonl"
    wait_until(lambda: process.poll() is not None or (metrics.exists() and metrics.stat().st_size > 2000))
    assert process.poll() is None
    return process


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def assert_resumes_to_the_same_bits(words: list[str], folder: Path, experiment: Write, **changes: Any) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    reference = run_to_end(experiment(**(LONG | changes), algorithm={"name": "scaffold"}), folder.parent)
    assert read_lines(folder) == read_lines(reference)
    assert load_summary(folder)["params_sha256"] == load_summary(reference)["params_sha256"]


@pytest.mark.slow
def test_a_failed_run_is_reported_and_the_others_finish(experiment: Write, fedcm: Fedcm, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(BROKEN)
    path = experiment(model={"name": "broken:Net", "width": 1}, rounds=3)
    words = [sys.executable, "-m", "fedcm", "sweep", path.name, "--over", "model.width=1,2,3", "--workers", "1"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert "1 of 3 runs failed, first small-model.width=2-fedcm-seed3" in done.stderr
    assert "3/3" in done.stderr
    for width in (1, 3):
        assert load_summary(tmp_path / "runs" / f"small-model.width={width}-fedcm-seed3")["outcome"] == "finished"


def test_a_dry_run_starts_nothing_and_its_estimates_add_up(experiment: Write, fedcm: Fedcm, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    words = ("compare", experiment(), "--algorithms", "fedavg,fedcm", "--seeds", 2, "--runs-dir", runs, "--dry-run")
    answer = fedcm(*words, "--json")
    assert answer.code == 0, answer.err
    plan = json.loads(answer.out)
    assert len(plan["runs"]) == 4
    for run in plan["runs"]:
        assert run["seconds"] == pytest.approx(run["seconds_a_round"] * 12)
    assert plan["seconds"] == pytest.approx(sum(run["seconds"] for run in plan["runs"]) / plan["cores"])
    assert not runs.exists()
    assert "4 runs" in fedcm(*words).out


@pytest.mark.slow
def test_an_estimate_counts_only_the_remaining_rounds(experiment: Write, fedcm: Fedcm, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    assert fedcm("compare", experiment(), "--algorithms", "fedavg", "--runs-dir", runs).code == 0
    tasks = make_tasks(expand_grid(experiment(), algorithms=["fedavg", "fedcm"]), runs)
    done, missing = estimate_tasks(tasks, None)
    assert (done.task.outcome, done.seconds) == ("finished", 0.0)
    assert missing.task.outcome == "missing"
    assert missing.seconds > 0


@pytest.mark.parametrize(
    ("words", "message"),
    [(("tabel1",), "table1"), (("table1", "--scale", "huge"), "mini or full")],
)
def test_an_unknown_table_or_scale_is_rejected(fedcm: Fedcm, words: tuple[str, ...], message: str) -> None:
    answer = fedcm("reproduce", *words)
    assert answer.code == 2
    assert message in answer.err
