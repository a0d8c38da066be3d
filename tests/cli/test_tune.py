"""`fedcm tune` on the command line: what it prints, and how mistakes end."""

import builtins
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Write = Callable[..., Path]
Fedcm = Callable[..., Any]
RATE = "client.lr=0.01..1:log"


def test_help_teaches_by_example(fedcm: Fedcm) -> None:
    answer = fedcm("tune", "--help")
    words = " ".join(answer.out.split())
    assert answer.code == 0
    assert "fedcm tune demo --over client.lr=0.01..1:log algorithm.alpha=0.01..1:log --trials 30" in words


def test_a_dry_run_prints_the_space_the_runs_and_the_time(experiment: Write, fedcm: Fedcm, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    words = ("tune", experiment(), "--over", RATE, "algorithm.alpha=0.05,0.5", "--runs-dir", runs, "--dry-run")
    answer = fedcm(*words, "--algorithms", "fedavg,fedcm", "--trials", 7, "--seeds", 2)
    assert answer.code == 0, answer.err
    assert answer.out.count(RATE) == 2
    assert answer.out.count("algorithm.alpha=0.05,0.5") == 1, "FedAvg has no alpha"
    assert "18 runs" in answer.out
    assert "at most about" in answer.out
    table = json.loads(fedcm(*words, "--json").out)
    assert table["algorithms"][0]["trials"] == 30
    assert not runs.exists()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ((), "a setting to tune must be given with --over"),
        (("--over", "client.lr"), "a setting to tune must be path=low..high or path=value,value"),
        (("--over", "client.lr=1..0.1"), "the first number must be below the second"),
        (("client.lr=0.1..1", "client.lr=0.2..1"), "'client.lr' is given twice"),
        (("--over", "client.lr=0.1..1", "--set", "client.lr=3"), "leave out one of the two"),
        (("--over", "client.epochs=1..3"), "every value of a setting to tune must work for 'fedcm'"),
        (("--over", "client.lr=0.1..1", "--validation", "2"), "validation"),
        (("--over", "client.lr=0.1..1", "--track", "nothing"), "there is no tracker 'nothing'"),
    ],
)
def test_a_mistake_is_one_sentence_and_nothing_is_written(
    experiment: Write, fedcm: Fedcm, tmp_path: Path, words: tuple[str, ...], reason: str
) -> None:
    answer = fedcm("tune", experiment(), *words, "--runs-dir", tmp_path / "runs")
    assert answer.code == 2
    assert reason in answer.err
    assert answer.err.startswith("fedcm: ")
    assert len(answer.err.splitlines()) == 1
    assert not (tmp_path / "runs").exists()


def test_a_missing_extra_is_one_sentence(
    experiment: Write, fedcm: Fedcm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = builtins.__import__

    def refuse(name: str, *rest: Any, **more: Any) -> Any:
        if name == "optuna":
            raise ModuleNotFoundError("No module named 'optuna'", name="optuna")
        return usual(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    answer = fedcm("tune", experiment(), "--over", RATE, "--runs-dir", tmp_path / "runs")
    assert answer.code == 2
    assert 'pip install "fedcm[tune]"' in answer.err
    assert not (tmp_path / "runs").exists()
