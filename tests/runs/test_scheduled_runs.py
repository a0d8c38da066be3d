"""Runs with schedules: overrides, resumes with more rounds, diagnoses."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scenes import Answer, finish_session, load_summary, read_lines
from torch_schedules import list_torch_factors

from fedcm.config.experiment import read_experiment, to_table
from fedcm.config.overrides import apply_overrides, read_table
from fedcm.errors import UserError
from fedcm.runs.session import Session

CLIENT = {"epochs": 1, "batch_size": 20, "lr": 0.1}
Call = Callable[..., Answer]


def start(path: Path, runs: Path, name: str, *changes: str) -> Path:
    finish_session(Session.start(read_experiment(apply_overrides(read_table(path), changes)), runs, name))
    return runs / name


def test_a_resume_with_more_rounds_needs_a_horizon(experiment: Callable[..., Path], tmp_path: Path) -> None:
    path = experiment(rounds=6, client=CLIENT | {"schedule": {"kind": "cosine", "warmup": 2}})
    half = start(path, tmp_path, "half", "rounds=3")
    with pytest.raises(
        UserError,
        match=r"^rounds must not change, because client.schedule depends on it; set client.schedule.over = 3, the",
    ):
        Session.resume(half, overrides=["rounds=6"])
    finish_session(Session.resume(half, overrides=["rounds=6", "client.schedule.over=3"]))
    rates = [line["client_lr"] for line in read_lines(half)]
    assert rates == pytest.approx(
        [0.1 * own for own in list_torch_factors({"kind": "cosine", "warmup": 2, "over": 3}, 6)]
    )


def test_three_rounds_and_three_more_are_six_with_a_horizon(experiment: Callable[..., Path], tmp_path: Path) -> None:
    schedules: dict[str, Any] = {"schedule": {"kind": "cosine", "over": 6}, "step_schedule": {"kind": "polynomial"}}
    server = {"lr": 1.0, "schedule": {"kind": "polynomial", "over": 6, "final": 0.5}}
    path = experiment(rounds=6, client=CLIENT | schedules, server=server)
    whole, half = start(path, tmp_path, "whole"), start(path, tmp_path, "half", "rounds=3")
    finish_session(Session.resume(half, overrides=["rounds=6"]))
    assert load_summary(half)["params_sha256"] == load_summary(whole)["params_sha256"]
    assert read_lines(half) == read_lines(whole) or [line["loss"] for line in read_lines(half)] == [
        line["loss"] for line in read_lines(whole)
    ]
    assert [line["server_lr"] for line in read_lines(whole)] == pytest.approx(
        list_torch_factors({"kind": "polynomial", "final": 0.5}, 6)
    )


def test_a_diagnosis_changes_no_bit(experiment: Callable[..., Path], tmp_path: Path) -> None:
    path = experiment(rounds=3, client=CLIENT | {"schedule": {"kind": "cosine"}, "step_schedule": {"kind": "cosine"}})
    plain = start(path, tmp_path, "plain")
    with_diagnosis = Session.start(read_experiment(read_table(path)), tmp_path, "diagnosed")
    assert finish_session(with_diagnosis, diagnose_every=1)[-1]["diagnosis"]
    assert load_summary(tmp_path / "diagnosed")["params_sha256"] == load_summary(plain)["params_sha256"]


def test_the_command_line_sets_schedules(fedcm: Call, experiment: Callable[..., Path], tmp_path: Path) -> None:
    path = experiment(rounds=3, client=CLIENT | {"schedule": {"kind": "exponential", "decay": 0.5, "warmup": 1}})
    changes = ("client.schedule.kind=cosine", "client.schedule.final=0.5", 'server.schedule={kind = "step", every = 1}')
    words = [word for change in changes for word in ("--set", change)]
    answer = fedcm("run", path, *words, "--runs-dir", tmp_path, "--name", "set")
    assert answer.code == 0, answer.err
    table = read_table(tmp_path / "set" / "experiment.toml")
    assert table["client"]["schedule"] == {"kind": "cosine", "final": 0.5, "warmup": 1}
    assert to_table(read_experiment(table))["server"]["schedule"] == {
        "kind": "step",
        "every": 1,
        "factor": 0.1,
        "warmup": 0,
    }
    assert [line["server_lr"] for line in read_lines(tmp_path / "set")] == pytest.approx([1.0, 0.1, 0.01])


@pytest.mark.parametrize(
    ("client", "sentence"),
    [
        ({"schedule": {"kind": "cosin"}}, "there is no client.schedule 'cosin'; did you mean 'cosine'?"),
        ({"schedule": {"kind": "cosine", "decay": 0.5}}, "client.schedule 'cosine' has no setting 'decay'"),
        ({"schedule": {"kind": "exponential"}}, "client.schedule.decay must be given for 'exponential'"),
        ({"schedule": "cosine"}, "client.schedule must be a table such as"),
        (
            {"schedule": {"kind": "cosine", "final": 2.0}},
            "'cosine': final must be from 0 to 1, got 2.0",
        ),
        ({"schedule": {"kind": "cosine"}, "lr_decay": 0.9}, "client: lr_decay must be 1 if the rate has a schedule"),
        ({"schedule": {"kind": "exponential", "decay": 1e-9}}, "but it is 1e-19 in round 2"),
        ({"step_schedule": {"kind": "function", "function": "math:nothing"}}, "'math:nothing' does not exist"),
    ],
)
def test_an_unusable_schedule_gives_one_sentence(
    fedcm: Call, experiment: Callable[..., Path], tmp_path: Path, client: dict[str, Any], sentence: str
) -> None:
    answer = fedcm("run", experiment(rounds=3, client=CLIENT | client), "--runs-dir", tmp_path / "runs")
    assert answer.code == 2
    assert sentence in " ".join(answer.err.split())
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("section", ["client", "server"])
def test_a_warm_up_that_covers_the_whole_run_is_rejected(
    section: str, experiment: Callable[..., Path], fedcm: Call, tmp_path: Path
) -> None:
    own = {"client": CLIENT, "server": {"lr": 1.0}}
    path = experiment(rounds=3, **{section: own[section] | {"schedule": {"kind": "cosine", "warmup": 3}}})
    sentence = "schedule.warmup {} be below the number of rounds, 3, or the whole run is a warm-up, got 3"
    answer = fedcm("run", path, "--runs-dir", tmp_path / "runs")
    assert answer.code == 2
    assert f"{section}.{sentence.format('must')}" in answer.err
    assert not (tmp_path / "runs").exists()
    call = ("run", path, "--runs-dir", tmp_path / "runs", "--set")
    assert fedcm(*call, f"{section}.schedule.warmup=2").code == 0
    other = fedcm(*call, f"{section}.schedule={{kind = 'constant', warmup = 3}}", "--fresh")
    assert other.code == 0, "more rounds may follow"
    assert f"fedcm: warning: {section}.{sentence.format('should')}" in other.err


def test_a_warm_up_longer_than_the_run_is_allowed_if_the_schedule_is_longer(
    experiment: Callable[..., Path], tmp_path: Path
) -> None:
    path = experiment(rounds=2, client=CLIENT | {"schedule": {"kind": "cosine", "warmup": 3, "over": 6}})
    assert [line["client_lr"] for line in read_lines(start(path, tmp_path, "piece"))] == pytest.approx(
        [0.1 / 3, 0.2 / 3]
    )


def test_a_warm_up_that_covers_all_local_steps_is_rejected(
    experiment: Callable[..., Path], fedcm: Call, tmp_path: Path
) -> None:
    client = {"steps": 4, "batch_size": 20, "lr": 0.1, "step_schedule": {"kind": "polynomial", "warmup": 4}}
    path = experiment(rounds=2, client=client)
    answer = fedcm("run", path, "--runs-dir", tmp_path / "runs")
    assert answer.code == 2
    assert "client.step_schedule.warmup must be below the number of local steps of some client" in answer.err
    assert "got 4 for at most 4 steps" in answer.err
    assert not (tmp_path / "runs").exists()
    for change in ("client.step_schedule.warmup=3", "client.steps={kind = 'uniform', low = 1, high = 4}"):
        assert fedcm("run", path, "--runs-dir", tmp_path / "runs", "--fresh", "--set", change).code == 0, change
