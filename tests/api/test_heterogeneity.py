"""Unequal work, stragglers and availability through `fedcm.train`: identities, workers, stacks, resumes and errors."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fedcm

SIZES = (3, 9, 4, 8, 16, 5)
USUAL: dict[str, Any] = {"rounds": 4, "participation": 4, "batch_size": 4, "lr": 0.2, "seed": 3}
CONDITIONS: dict[str, dict[str, Any]] = {
    "unequal steps": {"steps": fedcm.UniformWork(1, 6)},
    "unequal epochs": {"epochs": fedcm.UniformWork(1, 3, per="client")},
    "a function": {"steps": lambda round, client: 1 + (round + client) % 4},
    "dropped": {"stragglers": fedcm.Stragglers(4.0, spread=1.0, jitter=0.5)},
    "partial": {"stragglers": fedcm.Stragglers(2.5, spread=1.0, policy="partial"), "epochs": 2},
    "day and night": {"availability": fedcm.DayNight(period=4, share=0.5)},
    "all": {
        "steps": fedcm.UniformWork(1, 6),
        "stragglers": fedcm.Stragglers(4.0, jitter=1.0),
        "availability": fedcm.DayNight(period=4, share=0.5, zones=2),
    },
}


def make_clients() -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(size, 6, generator=generator), torch.arange(size) % 4) for size in SIZES]


def train(algorithm: Any = None, **settings: Any) -> fedcm.TrainingResult:
    torch.manual_seed(1)
    return fedcm.train(nn.Linear(6, 4), make_clients(), algorithm or fedcm.FedCM(0.3), **USUAL | settings)


def flatten(result: fedcm.TrainingResult) -> Tensor:
    return torch.cat([own.detach().reshape(-1) for own in result.model.parameters()])


def drop_times(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in line.items() if key != "seconds"} for line in history]


@pytest.mark.parametrize("algorithm", [fedcm.FedCM(0.3), fedcm.Scaffold(), fedcm.FedNova(0.5)], ids=str)
def test_draw_of_a_single_number_is_the_fixed_number(algorithm: Any) -> None:
    for unit in ("steps", "epochs"):
        fixed, drawn = (train(algorithm, **{unit: work}) for work in (3, fedcm.UniformWork(3, 3)))
        assert torch.equal(flatten(fixed), flatten(drawn))
        assert drop_times(fixed.history) == drop_times(drawn.history)


@pytest.mark.parametrize("policy", ["drop", "partial"])
@pytest.mark.parametrize("algorithm", [fedcm.FedCM(0.3), fedcm.Scaffold(), fedcm.Mime()], ids=str)
def test_deadline_that_nobody_misses_changes_nothing(algorithm: Any, policy: Any) -> None:
    usual = train(algorithm)
    late = train(algorithm, stragglers=fedcm.Stragglers(1e12, spread=1.0, jitter=1.0, policy=policy))
    assert torch.equal(flatten(usual), flatten(late))
    assert {line["missed"] for line in late.history} == {0}
    assert [line["clients"] for line in late.history] == [line["clients"] for line in usual.history]
    assert [line["bytes_down"] for line in late.history] == [line["bytes_down"] for line in usual.history]


@pytest.mark.parametrize("participation", [4, 0.5, 1.0])
def test_availability_of_everyone_changes_nothing(participation: Any, tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("client,start,stop\n" + "".join(f"{k},0,4\n" for k in range(6)))
    usual = train(participation=participation)
    for everyone in (
        fedcm.Trace(str(tmp_path / "trace.csv")),
        fedcm.Trace(str(tmp_path / "trace.csv"), period=4),
        fedcm.DayNight(period=7, share=1.0),
    ):
        same = train(participation=participation, availability=everyone)
        assert torch.equal(flatten(usual), flatten(same))
        assert {line["available"] for line in same.history} == {6}


def test_dropped_clients_are_as_if_they_had_not_been_asked() -> None:
    """Their states do not change, and the mean is that of the others."""

    class OnlyInTime:
        def cohort(self, population: int, seed: int, round: int) -> np.ndarray:
            return np.array(reported[round], dtype=np.int64)

    slow = train(fedcm.Scaffold(), stragglers=fedcm.Stragglers(4.0, spread=1.0))
    reported = [line["clients"] for line in slow.history]
    assert 0 < sum(line["missed"] for line in slow.history) < 16
    alone = train(fedcm.Scaffold(), participation=OnlyInTime())
    assert torch.equal(flatten(slow), flatten(alone))
    assert slow.state.clients.keys() == alone.state.clients.keys()
    for client, fields in slow.state.clients.items():
        assert all(torch.equal(vector, alone.state.clients[client][name]) for name, vector in fields.items())
    for one, other in zip(slow.history, alone.history, strict=True):
        assert one["bytes_up"] == other["bytes_up"]
        assert one["bytes_down"] * max(other["cohort"], 1) == other["bytes_down"] * 4 or not other["cohort"]


def test_partial_work_is_the_work_that_fits() -> None:
    slow = fedcm.Stragglers(2.5, spread=1.0, policy="partial")
    limited = train(epochs=2, stragglers=slow, participation=1.0)
    passes = {client: 2 * -(-size // 4) for client, size in enumerate(SIZES)}
    fit = {client: slow.fit_steps(steps, 3, 0, client) for client, steps in passes.items()}
    assert min(fit.values()) < max(fit.values())
    expected = [client for client in passes if fit[client] >= 1]

    class Reporting:
        def cohort(self, population: int, seed: int, round: int) -> np.ndarray:
            return np.array(expected)

    given = train(steps=lambda round, client: max(fit[client], 1), participation=Reporting())
    assert torch.equal(flatten(limited), flatten(given))


def test_round_in_which_all_clients_miss_the_deadline_changes_nothing() -> None:
    """In round 0 every client takes one step of one second, and in later rounds three, which are too many."""
    work: dict[str, Any] = {"epochs": None, "steps": lambda round, client: 1 if round == 0 else 3}
    late = train(fedcm.FedCM(0.3), stragglers=fedcm.Stragglers(2.0), **work)
    assert torch.equal(flatten(late), flatten(train(fedcm.FedCM(0.3), rounds=1, **work)))
    assert late.history[0]["missed"] == 0
    for line in late.history[1:]:
        assert (line["cohort"], line["missed"], line["simulated_seconds"], line["loss"]) == (0, 4, 2.0, None)
        assert line["bytes_up"] == 0 < line["bytes_down"]


def test_a_training_without_any_report_is_rejected() -> None:
    with pytest.raises(fedcm.UserError, match="but in 4 rounds none does: all miss the deadline"):
        train(stragglers=fedcm.Stragglers(0.5))


def test_round_with_nobody_available_changes_nothing() -> None:
    night = train(availability=fedcm.DayNight(period=4, share=0.25, zones=1), participation=1.0)
    assert [line["available"] for line in night.history] == [6, 0, 0, 0]
    assert [line["cohort"] for line in night.history] == [6, 0, 0, 0]
    assert torch.equal(flatten(night), flatten(train(rounds=1, participation=1.0)))


@pytest.mark.parametrize("condition", CONDITIONS)
def test_stack_has_the_same_result_up_to_rounding(condition: str) -> None:
    one, stacked = (train(stack=stack, **CONDITIONS[condition]) for stack in (1, 3))
    torch.testing.assert_close(flatten(one), flatten(stacked), rtol=1e-4, atol=1e-5)
    keys = ("clients", "steps", "missed", "available", "simulated_seconds", "steps_least", "steps_most")
    for a, b in zip(one.history, stacked.history, strict=True):
        assert [a.get(key) for key in keys] == [b.get(key) for key in keys]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_resume_has_the_same_bits(condition: str) -> None:
    settings = CONDITIONS[condition]
    whole, first = train(fedcm.Scaffold(), **settings), train(fedcm.Scaffold(), rounds=2, **settings)
    second = train(fedcm.Scaffold(), rounds=2, resume_from=first.state, **settings)
    assert torch.equal(flatten(whole), flatten(second))
    assert drop_times(whole.history) == drop_times([*first.history, *second.history])


@pytest.mark.parametrize("condition", ["dropped", "all"])
def test_workers_have_the_same_bits(condition: str) -> None:
    results = [train(fedcm.Scaffold(), workers=workers, **CONDITIONS[condition]) for workers in (1, 2, 3)]
    for other in results[1:]:
        assert torch.equal(flatten(results[0]), flatten(other))
        assert drop_times(results[0].history) == drop_times(other.history)


def test_resume_with_other_conditions_is_rejected(tmp_path: Path) -> None:
    first = train(rounds=1, stragglers=fedcm.Stragglers(4.0))
    for other in ({"stragglers": fedcm.Stragglers(5.0)}, {}, {"availability": fedcm.DayNight(4, 0.5)}):
        with pytest.raises(fedcm.UserError, match="the same settings"):
            train(resume_from=first.state, **other)
    file = tmp_path / "work.csv"
    file.write_text("client,steps\n" + "".join(f"{k},2\n" for k in range(6)))
    first = train(rounds=1, steps=fedcm.FileWork(str(file)))
    file.write_text("client,steps\n" + "".join(f"{k},3\n" for k in range(6)))
    with pytest.raises(fedcm.UserError, match="the same data"):
        train(resume_from=first.state, steps=fedcm.FileWork(str(file)))


def test_fednova_divides_by_the_steps_of_each_client() -> None:
    """One round against a literal computation: τ_eff = mean K_i, and the mean of the movements over K_i."""
    work, clients, rate = fedcm.UniformWork(1, 6), make_clients(), 0.2
    result = train(fedcm.FedNova(), rounds=1, participation=1.0, batch_size=20, steps=work)
    torch.manual_seed(1)
    start = nn.Linear(6, 4).double()
    before = torch.cat([own.detach().reshape(-1) for own in start.parameters()])
    counts, normalised = [], []
    for client, (x, y) in enumerate(clients):
        sequence = np.random.SeedSequence(3, spawn_key=(14, 0, client))
        counts.append(int(np.random.Generator(np.random.Philox(sequence)).integers(1, 7)))
        own = nn.Linear(6, 4).double()
        own.load_state_dict(start.state_dict())
        optimizer = torch.optim.SGD(own.parameters(), lr=rate)
        for _ in range(counts[-1]):  # every batch has all examples
            optimizer.zero_grad()
            nn.functional.cross_entropy(own(x.double()), y).backward()
            optimizer.step()
        after = torch.cat([vector.detach().reshape(-1) for vector in own.parameters()])
        normalised.append((before - after) / counts[-1])
    assert len(set(counts)) > 2
    expected = before - float(np.mean(counts)) * torch.stack(normalised).mean(0)
    torch.testing.assert_close(flatten(result).double(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 0}, "steps must be greater than or equal to 1, got 0"),
        ({"steps": fedcm.UniformWork}, "steps must be a valid integer"),
        ({"steps": fedcm.UniformWork(1, 2), "epochs": 2}, "steps and epochs exclude each other"),
        ({"steps": lambda round, client: 0}, "must return a whole number, at least 1, for client 0 in round 0, got 0"),
        ({"steps": fedcm.FileWork("none.csv")}, "the table of steps .* cannot be read"),
        ({"stragglers": 3.0}, "stragglers must be speeds such as fedcm.Stragglers"),
        ({"stragglers": fedcm.Stragglers(1.0, file="none.csv")}, "the table of speeds .* cannot be read"),
        ({"availability": 0.5}, "availability must be an availability such as fedcm.DayNight"),
        ({"availability": fedcm.Trace("none.csv")}, "the availability trace .* cannot be read"),
    ],
)
def test_what_cannot_work_is_rejected_in_a_sentence(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(fedcm.UserError, match=message):
        train(**settings)


@pytest.mark.parametrize("algorithm", [fedcm.VRLSGD(), fedcm.DSGD()], ids=str)
@pytest.mark.parametrize("name", ["stragglers", "availability"])
def test_algorithms_that_need_all_clients_reject_conditions(algorithm: Any, name: str) -> None:
    condition = {"stragglers": fedcm.Stragglers(9.0), "availability": fedcm.DayNight(4, 1.0)}[name]
    with pytest.raises(
        fedcm.UserError, match=rf"must have every client in every round, so \[{name}\] must be left out"
    ):
        train(algorithm, participation=1.0, **{name: condition})
