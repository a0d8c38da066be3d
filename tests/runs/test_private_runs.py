"""Private runs: resume, workers, empty cohorts, the budget, and what cannot be private."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import run_with_workers
from scenes import finish_session, load_summary, read_lines, resume_run, run_and_stop_after, run_to_end
from torch import nn

import fedcm
from fedcm.config.experiment import read_experiment
from fedcm.config.overrides import read_table
from fedcm.runs.session import Session, SessionOptions

Write = Callable[..., Path]
STEPS: dict[str, Any] = {"steps": 3, "batch_size": 7, "lr": 0.1}
NOISY: dict[str, Any] = {"noise_multiplier": 1.0, "clip": 0.3, "delta": 1e-3}
EVERYONE = {"kind": "everyone"}


def private(experiment: Write, privacy: dict[str, Any] | None = None, **changes: Any) -> Path:
    return experiment(**{"client": STEPS, "privacy": NOISY if privacy is None else privacy, "rounds": 6} | changes)


@pytest.mark.parametrize("more", [{}, {"clip_quantile": 0.5, "noise_multiplier": 0.2}, {"secret": True}], ids=str)
def test_a_resume_draws_the_same_noise(experiment: Write, tmp_path: Path, more: dict[str, Any]) -> None:
    """A secret key differs between runs, so there the resumed rounds are compared with those before the stop."""
    path = private(experiment, NOISY | more, participation=EVERYONE, checkpoints={"every": 1, "keep": 9})
    stopped = run_and_stop_after(3, path, tmp_path / "runs", "stopped")
    before = read_lines(stopped)
    assert len(before) == 3
    for note in (stopped / "checkpoints").glob("round-000003*"):
        note.unlink()  # round 2 is run again
    resume_run(stopped)
    assert read_lines(stopped)[:3] == before
    if "secret" not in more:
        whole = run_to_end(path, tmp_path / "runs")
        assert read_lines(stopped) == read_lines(whole)
        assert load_summary(stopped)["params_sha256"] == load_summary(whole)["params_sha256"]


def test_a_run_without_its_secret_key_is_not_resumed(experiment: Write, tmp_path: Path) -> None:
    path = private(experiment, NOISY | {"secret": True}, participation=EVERYONE)
    stopped = run_and_stop_after(2, path, tmp_path, "stopped")
    key = stopped / "noise.key"
    key.chmod(0o644)
    with pytest.raises(fedcm.UserError, match="only its owner may read the key"):
        Session.resume(stopped)
    key.unlink()
    with pytest.raises(fedcm.UserError, match="needs its key"):
        Session.resume(stopped)


@pytest.mark.slow
@pytest.mark.parametrize("secret", [False, True])
def test_workers_draw_the_same_noise(experiment: Write, tmp_path: Path, secret: bool) -> None:
    privacy = NOISY | {"clip_quantile": 0.5, "noise_multiplier": 0.2}
    path = private(experiment, privacy | ({"secret": True} if secret else {}), rounds=3, participation=EVERYONE)
    runs = tmp_path / "runs"
    run_with_workers(path, runs / "shared", 2)
    if secret:  # workers that disagreed about the key would disagree about the model
        assert len(read_lines(runs / "shared")) == 3
        return
    whole = run_to_end(path, runs)
    assert read_lines(runs / "shared") == read_lines(whole)
    assert load_summary(runs / "shared")["params_sha256"] == load_summary(whole)["params_sha256"]


@pytest.mark.parametrize("algorithm", ["fedavg", "fedcm", "scaffold"])
def test_an_empty_round_has_noise_and_an_update(experiment: Write, tmp_path: Path, algorithm: str) -> None:
    path = private(
        experiment, algorithm={"name": algorithm}, participation={"kind": "independent", "probability": 0.02}, rounds=4
    )
    lines = read_lines(run_to_end(path, tmp_path))
    empty = [line for line in lines if line["cohort"] == 0]
    assert empty
    for line in empty:
        assert line["loss"] is None
        assert line["update_norm"] > 0.1  # noise over an expected cohort of 0.24


def test_the_update_sees_the_expected_cohort(
    experiment: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[float] = []
    original = fedcm.FedDyn.update

    def update(self: Any, server: Any, mean: Any, round: fedcm.Round) -> Any:
        seen.append(round.cohort_size)
        return original(self, server, mean, round)

    monkeypatch.setattr(fedcm.FedDyn, "update", update)
    path = private(experiment, algorithm={"name": "feddyn"}, rounds=3)
    cohorts = [line["cohort"] for line in read_lines(run_to_end(path, tmp_path))]
    assert seen[-3:] == [0.3 * 12] * 3
    assert len({*cohorts}) > 1


def test_a_run_ends_before_its_budget_is_exceeded_and_says_so_first(experiment: Write, tmp_path: Path) -> None:
    path = private(experiment, NOISY | {"epsilon": 9.0, "noise_multiplier": 1.0}, participation=EVERYONE, rounds=20)
    said: list[str] = []
    session = Session.start(
        read_experiment(read_table(path)), tmp_path, "run", options=SessionOptions(notify=said.append)
    )
    paid = session.setup.plan.last_round + 1
    assert said == [f"the privacy budget of 9 pays for {paid} of 20 rounds; then the run ends"]
    lines = finish_session(session)
    assert len(lines) == paid < 20
    assert lines[-1]["epsilon"] <= 9.0
    assert "test_loss" in lines[-1]
    summary = load_summary(tmp_path / "run")
    assert summary["stopped_early"]["round"] == paid - 1
    assert summary["privacy"]["epsilon"] == lines[-1]["epsilon"]
    assert summary["privacy"]["adjacency"] == "add or remove one client"


def test_a_longer_run_keeps_its_noise_and_stops_at_its_budget(experiment: Write, tmp_path: Path) -> None:
    """The noise of the first rounds was computed for 4 rounds; with 9, the budget still pays for 4."""
    path = private(experiment, {"epsilon": 6.0, "clip": 0.3, "delta": 1e-3}, participation=EVERYONE, rounds=4)
    folder = run_to_end(path, tmp_path)
    before, noise = read_lines(folder), load_summary(folder)["privacy"]["noise_multiplier"]
    finish_session(Session.resume(folder, overrides=["rounds=9"]))
    assert [line["epsilon"] for line in read_lines(folder)] == [line["epsilon"] for line in before]
    summary = load_summary(folder)
    assert summary["privacy"]["noise_multiplier"] == noise
    assert summary["stopped_early"]["reason"].startswith("the privacy budget is spent")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"client": {"epochs": 2}}, "privacy needs the same number of local steps at every client"),
        ({"client": {"steps": {"kind": "uniform", "low": 1, "high": 3}}}, "privacy needs the same number of local"),
        ({"server": {"weights": "examples"}}, "privacy needs clients of equal weight"),
        ({"availability": {"kind": "day-night", "period": 4, "share": 0.5}}, r"\[availability\] changes who takes"),
        ({"stragglers": {"deadline": 9.0}}, r"\[stragglers\] changes who takes part"),
        ({"algorithm": {"name": "mime"}}, "privacy needs one exchange in a round, and 'mime' has two"),
        ({"algorithm": {"name": "d-sgd"}, "participation": EVERYONE}, "privacy needs a server that adds noise"),
        ({"privacy": {"epsilon": 1.0}}, "clip must be given"),
        ({"privacy": {"clip": 1.0}}, "epsilon, noise_multiplier or both must be given"),
        ({"privacy": NOISY | {"clip": {"moved": 1.0}}}, r"one for each field that 'fedcm' reports \(direction\)"),
        ({"privacy": NOISY | {"delta": 0.1}}, "privacy.delta must be below 1 / 12"),
        ({"privacy": NOISY | {"clip_quantile": 0.5}}, "privacy.clip_quantile needs an expected cohort above 10"),
        ({"privacy": NOISY | {"epsilon": 0.1}, "participation": EVERYONE}, "does not pay for one round"),
    ],
    ids=str,
)
def test_what_cannot_be_private_is_rejected_before_the_folder(
    experiment: Write, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    path = private(experiment, **{"privacy": NOISY} | changes)
    with pytest.raises(fedcm.UserError, match=message):
        Session.start(read_experiment(read_table(path)), tmp_path / "runs", "run")
    assert not (tmp_path / "runs").exists()


CLIENTS = [(torch.randn(6, 3, generator=torch.Generator().manual_seed(k)), torch.arange(6) % 2) for k in range(20)]


def train(**settings: Any) -> fedcm.TrainingResult:
    torch.manual_seed(0)
    given = {"rounds": 4, "steps": 2, "participation": 0.2, "privacy": fedcm.Privacy(noise_multiplier=1.0, clip=0.5)}
    return fedcm.train(nn.Linear(3, 2), CLIENTS, fedcm.FedCM(), **given | settings)  # pyright: ignore[reportArgumentType]


def test_training_in_python_is_private_on_any_number_of_workers_and_in_parts() -> None:
    whole = train()
    epsilons = [line["epsilon"] for line in whole.history]
    assert 0 < epsilons[0] < epsilons[-1]
    assert all(
        torch.equal(a, b) for a, b in zip(whole.model.parameters(), train(workers=2).model.parameters(), strict=True)
    )
    half = train(rounds=2)
    rest = train(rounds=2, resume_from=half.state)
    assert all(torch.equal(a, b) for a, b in zip(whole.model.parameters(), rest.model.parameters(), strict=True))
    assert [line["epsilon"] for line in rest.history] == epsilons[2:]
    other = train(privacy=None)
    assert not any(torch.equal(a, b) for a, b in zip(whole.model.parameters(), other.model.parameters(), strict=True))
    assert "epsilon" not in other.history[0]


def test_a_training_in_parts_keeps_its_moving_thresholds() -> None:
    moving = {"privacy": fedcm.Privacy(noise_multiplier=0.2, clip=0.05, clip_quantile=0.9), "participation": 1.0}
    whole, half = train(**moving), train(rounds=2, **moving)
    rest = train(rounds=2, resume_from=half.state, **moving)
    factors = [line["clip_factor"] for line in whole.history]
    assert factors[2] != 1
    assert [line["clip_factor"] for line in (*half.history, *rest.history)] == factors


@pytest.mark.parametrize(
    ("privacy", "message"),
    [
        (8.0, "privacy must be a fedcm.Privacy"),
        (fedcm.Privacy(clip=1.0), "epsilon, noise_multiplier or both"),
        (fedcm.Privacy(epsilon=-1.0, clip=1.0), "epsilon must be greater than 0"),
        (fedcm.Privacy(noise_multiplier=1.0, clip=1.0, secret=True), "secret=True needs fedcm.run"),
    ],
    ids=str,
)
def test_mistaken_arguments_are_errors(privacy: Any, message: str) -> None:
    with pytest.raises(fedcm.UserError, match=message):
        train(privacy=privacy)


def test_a_training_that_continues_names_its_noise() -> None:
    budget = fedcm.Privacy(epsilon=5.0, clip=0.5)
    with pytest.raises(fedcm.UserError, match="privacy must have noise_multiplier"):
        train(privacy=budget, participation=1.0, resume_from=train(privacy=budget, participation=1.0).state)


def test_a_training_whose_budget_is_spent_does_not_continue() -> None:
    budget = {"privacy": fedcm.Privacy(epsilon=30.0, noise_multiplier=0.5, clip=0.5), "participation": 1.0, "rounds": 9}
    first = train(**budget)
    assert first.stopped_early
    assert 0 < len(first.history) < 9
    with pytest.raises(fedcm.UserError, match=f"the privacy budget pays for {len(first.history)} rounds"):
        train(**budget, resume_from=first.state)


def test_a_run_of_python_objects_resumes_with_its_noise(tmp_path: Path) -> None:
    made = {"rounds": 4, "steps": 2, "privacy": fedcm.Privacy(epsilon=5.0, clip=0.5, secret=True)}
    experiment = fedcm.make_experiment(nn.Linear(3, 2), CLIENTS, fedcm.FedAvg(), **made)
    seen: list[Any] = []

    def stop(line: Any) -> bool:
        seen.append(line)
        return len(seen) == 2

    run = fedcm.run(experiment, runs_dir=tmp_path, callbacks=[stop])
    assert run.outcome == "stopped"
    again = fedcm.resume(run.path, experiment=fedcm.make_experiment(nn.Linear(3, 2), CLIENTS, fedcm.FedAvg(), **made))
    assert again.outcome == "finished"
    assert math.isclose(json.loads((run.path / "summary.json").read_text())["privacy"]["epsilon"], 5.0, rel_tol=0.02)


def test_personal_layers_stay_at_their_clients() -> None:
    result = train(personal="bias", client_tests=0.3, privacy=fedcm.Privacy(noise_multiplier=50.0, clip=0.5))
    model = result.client_model(result.history[0]["clients"][0])
    assert dict(model.named_parameters())["bias"].abs().max() < 5


def test_a_secret_key_decides_who_takes_part(experiment: Write, tmp_path: Path) -> None:
    """Sampling amplifies privacy only while nobody can draw the cohorts again, and the seed is no secret."""
    drawn = {"kind": "independent", "probability": 0.5}
    cohorts = []
    for k, more in enumerate(({}, {}, {"secret": True}, {"secret": True})):
        run = run_to_end(private(experiment, NOISY | more, participation=drawn, rounds=8), tmp_path / str(k))
        cohorts.append([line["clients"] for line in read_lines(run)])
    assert cohorts[0] == cohorts[1]
    assert len({str(cohorts[k]) for k in (0, 2, 3)}) == 3
