"""Schedules of learning rates from Python: functions, resumes, errors."""

from pathlib import Path
from typing import Any

import pytest
import torch

import fedcm

SETTINGS: dict[str, Any] = {"lr": 0.5, "participation": 0.5, "batch_size": 4, "seed": 3}


def make_clients() -> list[tuple[torch.Tensor, torch.Tensor]]:
    draw = torch.Generator().manual_seed(1)
    return [(torch.randn(9, 3, generator=draw) + k / 5, torch.arange(9) % 2) for k in range(6)]


def make_model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Linear(3, 2)


def train(rounds: int, algorithm: Any = None, **settings: Any) -> fedcm.TrainingResult:
    return fedcm.train(make_model(), make_clients(), algorithm or fedcm.FedCM(), rounds=rounds, **SETTINGS | settings)


def equal(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def halve(round: int, rounds: int) -> float:
    return 0.5**round


def test_a_python_function_is_a_schedule() -> None:
    rates = [line["client_lr"] for line in train(4, lr_schedule=halve).history]
    assert rates == [0.5, 0.25, 0.125, 0.0625]
    assert equal(train(4, lr_schedule=halve).model, train(4, lr_decay=0.5).model)


def test_the_server_rate_is_recorded_only_if_it_has_a_schedule() -> None:
    assert "server_lr" not in train(2).history[0]
    rates = [line["server_lr"] for line in train(3, server_lr=2.0, server_lr_schedule=halve).history]
    assert rates == [2.0, 1.0, 0.5]


@pytest.mark.parametrize("workers", [1, 2])
def test_ten_rounds_and_ten_more_are_twenty_with_a_horizon(workers: int) -> None:
    more: dict[str, Any] = {
        "lr_schedule": fedcm.Cosine(over=20, warmup=3),
        "server_lr_schedule": fedcm.FunctionSchedule(lambda t, total: 1.2 - t / total, over=20),
        "step_schedule": fedcm.Polynomial(final=0.5),
    }
    whole = train(20, fedcm.Scaffold(), **more)
    half = train(10, fedcm.Scaffold(), **more)
    rest = train(10, fedcm.Scaffold(), resume_from=half.state, workers=workers, **more)
    assert equal(rest.model, whole.model)
    assert equal(train(20, fedcm.Scaffold(), **more | {"lr_schedule": fedcm.Cosine(warmup=3)}).model, whole.model)


@pytest.mark.parametrize(
    "schedule", [fedcm.Cosine(), fedcm.Polynomial(), halve], ids=["cosine", "polynomial", "function"]
)
@pytest.mark.parametrize("keyword", ["lr_schedule", "server_lr_schedule"])
def test_a_schedule_without_horizon_cannot_get_more_rounds(keyword: str, schedule: Any) -> None:
    half = train(4, **{keyword: schedule})
    with pytest.raises(
        fedcm.UserError, match=r"^resume_from comes from a training of 4 rounds, and a schedule .* `over`"
    ):
        train(4, **{keyword: schedule}, resume_from=half.state)


def test_a_finished_horizon_can_be_named_afterwards() -> None:
    """Cosine over 4 rounds is the cosine of a training of 4 rounds; the rate then stays at its last value."""
    half = train(4, lr_schedule=fedcm.Cosine())
    rest = train(4, lr_schedule=fedcm.Cosine(over=4), resume_from=half.state)
    assert [line["client_lr"] for line in rest.history] == [half.history[-1]["client_lr"]] * 4


def test_other_schedules_need_no_horizon() -> None:
    schedule = fedcm.StepDecay(0.5, every=3, warmup=2)
    half = train(5, lr_schedule=schedule)
    rest = train(5, lr_schedule=schedule, resume_from=half.state)
    assert equal(rest.model, train(10, lr_schedule=schedule).model)
    with pytest.raises(fedcm.UserError, match="with the same settings, and they differ"):
        train(5, lr_schedule=fedcm.StepDecay(0.4, every=3, warmup=2), resume_from=half.state)


def test_a_run_of_python_objects_resumes_with_its_function(tmp_path: Path) -> None:
    def make(rounds: int, **more: Any) -> fedcm.PythonExperiment:
        schedule = fedcm.FunctionSchedule(halve, over=6)
        return fedcm.make_experiment(
            make_model(), make_clients(), fedcm.FedCM(), rounds=rounds, lr_schedule=schedule, **SETTINGS | more
        )

    whole = fedcm.run(make(6), runs_dir=tmp_path, name="whole")
    half = fedcm.run(make(3), runs_dir=tmp_path, name="half")
    assert 'kind = "in-memory:halve"' in (half.path / "experiment.toml").read_text()
    rest = fedcm.resume(half.path, experiment=make(6))
    assert rest.summary["params_sha256"] == whole.summary["params_sha256"]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"lr_schedule": 0.5}, r"^lr_schedule must be a table such as .* or a function, got 0.5"),
        ({"lr_schedule": fedcm.Cosine}, r"^lr_schedule must be a table such as .* fedcm.Cosine\(\)"),
        ({"server_lr_schedule": "cosine"}, r"^server_lr_schedule must be a table such as"),
        ({"step_schedule": 3}, r"^step_schedule must be a table such as"),
        ({"lr_schedule": fedcm.Cosine(), "lr_decay": 0.9}, r"^lr_decay must be 1 if the rate has a schedule, got 0.9"),
        ({"lr_schedule": lambda t, total: 1.0 - t}, r"got 0.0 in round 1$"),
        ({"lr_schedule": lambda t, total: 1e-13}, r"client.lr times the factor .* but it is 5e-14 in round 0"),
        ({"server_lr_schedule": lambda t, total: 1e6, "server_lr": 2.0}, r"server.lr times .* it is 2e\+06 in round 0"),
    ],
)
def test_an_unusable_schedule_gives_one_sentence(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(fedcm.UserError, match=sentence):
        train(4, **settings)


@pytest.mark.parametrize("algorithm", [fedcm.VRLSGD(), fedcm.DSGD()], ids=str)
def test_algorithms_without_a_server_rate_reject_its_schedule(algorithm: Any) -> None:
    with pytest.raises(fedcm.UserError, match=r"has no server learning rate, so server.schedule must be left out"):
        train(2, algorithm, server_lr_schedule=fedcm.Cosine(), participation=1.0)
