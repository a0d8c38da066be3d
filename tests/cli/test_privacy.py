"""`fedcm privacy` computes ε before anything is trained; runs and reports show what was spent."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scenes import run_to_end

import fedcm as package
from fedcm.core.participation import Everyone
from fedcm.privacy.accountant import Accountant, Sampling
from fedcm.reports.extraction import make_digest
from fedcm.runs.folder import RunFolder

Write = Callable[..., Path]
PRIVATE: dict[str, Any] = {
    "client": {"steps": 3, "batch_size": 7, "lr": 0.1},
    "participation": {"kind": "everyone"},
    "privacy": {"epsilon": 6.0, "clip": 0.3, "delta": 1e-3},
    "rounds": 10,
}


def test_it_prints_and_draws_the_plan(experiment: Write, fedcm: Any, tmp_path: Path) -> None:
    picture = tmp_path / "plan.png"
    answer = fedcm("privacy", experiment(**PRIVATE), "--picture", picture)
    assert answer.code == 0
    assert "at δ = 0.001 after 10 rounds, within the budget of 6" in answer.out
    assert "no amplification by sampling is claimed" in answer.out
    assert "ε after 20" in answer.out
    assert str(picture) in answer.out.replace("\n", "")
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert not (tmp_path / "runs").exists()


def test_json_has_the_same_numbers_as_the_accountant(experiment: Write, fedcm: Any, tmp_path: Path) -> None:
    words = (
        "--set",
        "privacy.noise_multiplier=2.0",
        "--set",
        "rounds=30",
        "--picture",
        tmp_path / "plan.svg",
        "--json",
    )
    table = json.loads(fedcm("privacy", experiment(**PRIVATE), *words).out)
    own = Accountant(Sampling.of(Everyone()), 2.0, 1e-3)
    assert table["epsilon"] == own.compute_epsilon(30)
    assert table["epsilon"] <= table["epsilon_by_rdp"]
    assert table["paid_rounds"] == own.count_rounds(6.0, 30) < 30
    assert table["rounds"] == [3, 9, 30, 60]
    (row,) = [row for row in table["by_noise"] if row["is_own"]]
    assert row["epsilons"] == [own.compute_epsilon(rounds) for rounds in (3, 9, 30, 60)]
    assert table["by_participation"] == []


def test_participation_has_a_table_of_its_own_if_clients_are_drawn(experiment: Write) -> None:
    changes = {
        "participation": {"kind": "independent", "probability": 0.2},
        "privacy": {"noise_multiplier": 4.0, "clip": 1.0},
    }
    plan = package.plan_privacy(experiment(**PRIVATE | changes | {"rounds": 4}))
    assert [row.probability for row in plan.by_participation] == [0.05, 0.1, 0.2, 0.4]
    spent = [row.epsilons[-1] for row in plan.by_participation]
    assert spent == sorted(spent)


def test_an_experiment_without_privacy_is_an_error(fedcm: Any) -> None:
    answer = fedcm("privacy", "demo")
    assert answer.code == 2
    assert "privacy.epsilon or privacy.noise_multiplier must be given" in answer.err


def test_a_missing_accountant_is_an_error_that_names_the_extra(
    experiment: Write, fedcm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "dp_accounting", None)
    answer = fedcm("privacy", experiment(**PRIVATE | {"rounds": 11}))
    assert answer.code == 2
    assert "pip install 'fedcm[privacy]'" in answer.err


def test_the_report_has_a_curve_and_a_column_of_epsilon(experiment: Write, fedcm: Any, tmp_path: Path) -> None:
    folder = run_to_end(experiment(**PRIVATE), tmp_path / "runs")
    digest = make_digest(RunFolder(folder))
    spent = digest.summary["privacy"]["epsilon"]
    assert digest.curve.round == [3, 6, 9, 10]
    assert digest.curve.epsilon == sorted(digest.curve.epsilon, key=lambda value: value or 0)
    assert digest.curve.epsilon[-1] == pytest.approx(spent, rel=1e-5)
    assert fedcm("report", tmp_path / "runs", "--output", tmp_path / "page").code == 0
    page = next((tmp_path / "page").rglob("*.html")).read_text()
    assert "ε spent" in page
    assert "Privacy spent" in page
