"""Simulated attacks: who attacks, which bits, and what cannot work."""

from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
import torch

import fedcm
from fedcm.config.experiment import read_experiment, to_table
from fedcm.core.attacks import ATTACKS, LittleIsEnough, SignFlip
from fedcm.core.attacks.hostile import draw_hostile
from fedcm.errors import UserError
from fedcm.runs.build import build
from fedcm.runs.session import Session

BASE: dict[str, Any] = {
    "name": "attacked",
    "rounds": 2,
    "seed": 3,
    "split": {"kind": "dirichlet", "clients": 10, "concentration": 0.5},
    "model": {"name": "linear"},
    "algorithm": {"name": "fedcm"},
    "client": {"steps": 2, "batch_size": 10, "lr": 0.1},
    "engine": {"stack": 1, "layout": "channels_last", "compile": "off"},
}


def read(**tables: Any) -> Any:
    return read_experiment(BASE | tables)


def make_clients(count: int = 6) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(count, 12, 1, 5, 5, generator=generator)
    return [(x, (x.sum((1, 2, 3)) > 0).long() + 2 * (x[:, 0, 0, 0] > 0).long()) for x in images]


def train(**settings: Any) -> Any:
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(25, 4))
    with torch.no_grad():
        for own in model.parameters():
            own.zero_()
    chosen: dict[str, Any] = {"rounds": 3, "lr": 0.2, "batch_size": 5, "seed": 2, "test": make_clients(7)[6]}
    return fedcm.train(model, make_clients(), fedcm.FedCM(alpha=0.5), **chosen | settings)


def get_params(result: Any) -> torch.Tensor:
    return torch.cat([own.detach().reshape(-1) for own in result.model.parameters()])


def test_hostile_clients_follow_from_the_seed() -> None:
    drawn = [draw_hostile(SignFlip(clients=0.3), 50, seed).tolist() for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(set(drawn[0])) == 15
    assert draw_hostile(SignFlip(clients=(7, 2)), 50, 1).tolist() == [2, 7]


@pytest.mark.parametrize(
    ("clients", "words"),
    [(0.01, "makes none of the 10 clients hostile"), ((3, 10), "must be clients from 0 to 9, got 10")],
)
def test_nobody_and_strangers_cannot_attack(clients: Any, words: str) -> None:
    with pytest.raises(UserError, match=words):
        build(read(attack={"kind": "sign-flip", "clients": clients}))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ATTACKS)
@pytest.mark.parametrize("mean", ["plain", fedcm.Median(bucketing=2)])
def test_an_attack_has_the_same_bits_on_two_workers_and_after_a_resume(kind: str, mean: Any) -> None:
    attack = ATTACKS[kind](clients=(1, 4))  # pyright: ignore[reportCallIssue]
    whole = train(attack=attack, mean=mean)
    assert torch.equal(get_params(train(attack=attack, mean=mean, workers=2)), get_params(whole))
    first = train(attack=attack, mean=mean, rounds=1)
    resumed = train(attack=attack, mean=mean, rounds=2, resume_from=first.state)
    assert torch.equal(get_params(resumed), get_params(whole))
    assert [line["hostile"] for line in whole.history] == [2, 2, 2]
    assert ("backdoor_success" in whole.history[-1]) == (kind == "backdoor")
    assert not torch.equal(get_params(train(mean=mean)), get_params(whole))


@pytest.mark.parametrize("kind", ATTACKS)
def test_stacks_are_attacked_in_the_same_way(kind: str) -> None:
    attack = ATTACKS[kind](clients=(1, 4))  # pyright: ignore[reportCallIssue]
    one, stacked = train(attack=attack), train(attack=attack, stack=4)
    assert torch.allclose(get_params(one), get_params(stacked), atol=1e-5)


def test_the_success_of_a_backdoor_is_counted_without_the_target_class() -> None:
    """By hand: the corner of every test image of another class is bright; how many are classified as the target?"""
    attack = fedcm.Backdoor(clients=(1, 4), target=1, size=2)
    result = train(attack=attack)
    images, labels = make_clients(7)[6]
    images, bright = images[labels != 1].clone(), make_clients()[0][0].max()
    images[..., -2:, -2:] = bright
    with torch.no_grad():
        share = float((result.model(images).argmax(1) == 1).double().mean())
    assert result.history[-1]["backdoor_success"] == pytest.approx(share)


def test_the_default_z_hides_among_the_honest_reports() -> None:
    """Baruch et al. 2019, section 3: 50 workers, 24 of them corrupted."""
    expected = NormalDist().inv_cdf((50 - 24 - 2) / (50 - 24))
    assert LittleIsEnough().choose_z(26, 24) == pytest.approx(expected)
    assert LittleIsEnough().choose_z(4, 1) == 0


def test_robust_means_have_the_same_bits_in_a_run_on_workers(tmp_path: Path) -> None:
    means: list[Any] = ["median", {"kind": "krum", "hostile": 2}, {"kind": "clipped", "bound": 0.1}]
    for number, mean in enumerate(means):
        chosen = read(server={"mean": mean})
        notices: list[str] = []
        from fedcm.runs.session import SessionOptions

        with Session.start(chosen, tmp_path, f"r{number}", options=SessionOptions(notify=notices.append)) as run:
            list(run.rounds())
        assert len(notices) == (mean == "median" or mean["kind"] != "clipped")
        assert all("held in memory for the mean: 1 MB in each process for 10 reports of 650" in one for one in notices)


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({"server": {"mean": "mode"}}, "there is no server.mean 'mode'"),
        ({"server": {"mean": 3}}, "server.mean must be a name"),
        ({"server": {"mean": {"kind": "krum"}}}, "server.mean.hostile must be given"),
        ({"server": {"mean": "median", "weights": "examples"}, "algorithm": {"name": "fedavg"}}, "counts every report"),
        ({"server": {"mean": "median"}, "algorithm": {"name": "d-sgd"}}, "'d-sgd' has no server"),
        ({"attack": {"kind": "noise"}, "algorithm": {"name": "d-sgd"}}, "needs an algorithm with a server"),
        ({"attack": {"kind": "nose"}}, "there is no attack 'nose'"),
        ({"attack": 3}, "attack must be a table"),
        ({"attack": {"kind": "sign-flip", "clients": 1.5}}, "share above 0 and at most 1"),
    ],
)
def test_what_cannot_work_is_rejected_when_it_is_read(tables: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        read(**tables)


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        (
            {"server": {"mean": {"kind": "krum", "hostile": 4}}},
            "needs at least 11 reports per round, got cohorts",
        ),
        (
            {"server": {"mean": {"kind": "bulyan", "hostile": 0, "bucketing": 5}}},
            "at least 11 reports per round in 3 buckets of 5, got cohorts of 10",
        ),
        (
            {"server": {"mean": {"kind": "krum", "hostile": 0}}, "participation": {"kind": "fixed", "clients": 2}},
            "got cohorts of 2",
        ),
        ({"attack": {"kind": "backdoor", "target": 10}}, "must be a class below 10, got 10"),
        ({"attack": {"kind": "backdoor", "size": 9}}, "needs images of at least 9 pixels"),
    ],
)
def test_what_cannot_work_is_rejected_before_a_run(tables: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        build(read(**tables))


@pytest.mark.parametrize("kind", ATTACKS)
def test_an_attack_and_a_mean_survive_a_table(kind: str) -> None:
    chosen = read(attack={"kind": kind, "clients": [0, 3]}, server={"mean": {"kind": "trimmed", "share": 0.1}})
    assert to_table(read_experiment(to_table(chosen))) == to_table(chosen)
    assert np.isclose(to_table(chosen)["server"]["mean"]["share"], 0.1)
