"""`fedcm tune` with real processes: in parallel, after Ctrl-C, and after a kill."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scenes import read_lines, run_to_end

Write = Callable[..., Path]
Fedcm = Callable[..., Any]


def make_words(experiment: Write, runs: Path, *more: object, rounds: int = 4) -> tuple[object, ...]:
    path = experiment(rounds=rounds, evaluation={"every": 1})
    return ("tune", path, "--over", "client.lr=0.001..1:log", "--runs-dir", runs, *more)


def read_trials(runs: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (runs / "small-tune" / "trials.jsonl").read_text().splitlines()]
    return [line for line in lines if "state" in line]


@pytest.mark.slow
def test_two_trials_in_parallel_and_a_table_of_winners(experiment: Write, fedcm: Fedcm, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    answer = fedcm(
        *make_words(experiment, runs, "--trials", 3, "--jobs", 2, "--seeds", 2, "--algorithms", "fedavg,fedcm")
    )
    assert answer.code == 0, answer.err
    assert "6/6" in answer.err
    assert len(read_trials(runs)) == 6
    assert answer.out.count("±") == 3, "two rows, and the explanation"
    assert f"report: {runs / 'small-tune' / 'report' / 'index.html'}" in answer.out
    for name in ("fedavg", "fedcm"):
        best = runs / "small-tune" / f"best-{name}.toml"
        assert f"best settings of {name}: {best}" in answer.out
        again = read_lines(run_to_end(best, tmp_path / "again", name))
        assert any(again == read_lines(trial) for trial in (runs / "small-tune").glob(f"trial-*-{name}"))
    table = json.loads(
        fedcm(*make_words(experiment, runs, "--trials", 3, "--seeds", 2, "--algorithms", "fedavg,fedcm", "--json")).out
    )
    assert table["fedcm"]["trials"] == table["fedavg"]["trials"] == 3


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_tuning_continues_to_the_same_trials(
    experiment: Write, fedcm: Fedcm, tmp_path: Path, number: signal.Signals
) -> None:
    words = make_words(experiment, tmp_path / "runs", "--trials", 3, "--jobs", 1, rounds=150)
    process = subprocess.Popen(
        [sys.executable, "-m", "fedcm", *map(str, words)], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    second = tmp_path / "runs" / "small-tune" / "trial-0001-fedcm" / "metrics.jsonl"
    limit = time.monotonic() + 120
    while not (second.is_file() and second.stat().st_size) and time.monotonic() < limit:
        time.sleep(0.05)
    process.send_signal(number)
    _, err = process.communicate(timeout=120)
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert "the same command continues where it stopped" in err
    (ended,) = read_trials(tmp_path / "runs")
    first = (tmp_path / "runs" / "small-tune" / "trial-0000-fedcm" / "summary.json").stat().st_mtime_ns
    answer = fedcm(*words)
    assert answer.code == 0, answer.err
    assert "1 of 3 trials has ended already" in answer.err
    assert (tmp_path / "runs" / "small-tune" / "trial-0000-fedcm" / "summary.json").stat().st_mtime_ns == first
    assert read_trials(tmp_path / "runs")[0] == ended
    whole = fedcm(*make_words(experiment, tmp_path / "whole", "--trials", 3, "--jobs", 1, rounds=150))
    assert whole.code == 0, whole.err
    assert read_trials(tmp_path / "runs") == read_trials(tmp_path / "whole")


@pytest.mark.slow
def test_a_hopeless_run_is_stopped_and_keeps_its_rounds(experiment: Write, fedcm: Fedcm, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    words = make_words(experiment, runs, "--trials", 9, "--jobs", 2, rounds=300)
    answer = fedcm(*words)
    assert answer.code == 0, answer.err
    pruned = [trial for trial in read_trials(runs) if trial["state"] == "pruned"]
    assert pruned
    for trial in pruned:
        folder = runs / "small-tune" / f"trial-{trial['number']:04d}-fedcm"
        assert len(read_lines(folder)) == trial["rounds"] >= 75
        assert trial["points"][-1][0] < trial["rounds"]
    assert "pruned" in answer.err
