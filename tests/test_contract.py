"""Every algorithm keeps the contract, and what breaks it is found."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

from fedcm.algorithm import Algorithm, Gradient, LocalRun, Nothing, Round, Vector, messages
from fedcm.algorithms import ALGORITHMS, FedAdam, FedAvg, FedCM, FedDyn, Scaffold
from fedcm.contract import violations

ROWS: list[Algorithm[Any, Any, Any, Any]] = [
    FedAvg(),
    FedCM(alpha=0.1),
    FedCM(alpha=1.0),
    FedAdam(),
    Scaffold(option="I"),
    Scaffold(option="II"),
    FedDyn(alpha=0.01),
]


@pytest.mark.parametrize("algorithm", ROWS, ids=str)
def test_the_algorithm_keeps_the_contract(algorithm: Algorithm[Any, Any, Any, Any]) -> None:
    assert violations(algorithm) == []


def test_every_algorithm_by_name_has_a_row() -> None:
    assert {type(row) for row in ROWS} == set(ALGORITHMS.values())


@pytest.mark.parametrize(
    ("name", "sent", "kept", "reported"),
    [
        ("fedavg", 1, 0, 1),
        ("fedcm", 2, 0, 1),
        ("fedadam", 1, 0, 1),
        ("scaffold", 2, 1, 2),
        ("feddyn", 1, 1, 1),
    ],
)
def test_the_messages_have_as_many_vectors_as_the_papers_say(name: str, sent: int, kept: int, reported: int) -> None:
    types = messages(ALGORITHMS[name])
    counts = [len(getattr(t, "_fields", ())) for t in (types.sent, types.kept, types.reported)]
    assert counts == [sent, kept, reported]


class State(NamedTuple):
    params: Vector


class Report(NamedTuple):
    moved: Vector


@dataclass(frozen=True)
class Sound(Algorithm[State, State, Nothing, Report]):
    def init_server(self, params: Vector) -> State:
        return State(params)

    def init_client(self, params: Vector) -> Nothing:
        return Nothing()

    def broadcast(self, server: State) -> State:
        return server

    def direction(self, gradient: Gradient, params: Vector, sent: State, kept: Nothing) -> Vector:
        return gradient(params)

    def report(self, run: LocalRun, sent: State, kept: Nothing) -> tuple[Report, Nothing]:
        return Report(run.moved), kept

    def update(self, server: State, mean: Report, round: Round) -> State:
        return State(server.params - mean.moved)


@dataclass(frozen=True)
class UpdatesInPlace(Sound):
    def update(self, server: State, mean: Report, round: Round) -> State:
        return State(server.params.sub_(mean.moved))


@dataclass(frozen=True)
class ReducesOverTheStack(Sound):
    def direction(self, gradient: Gradient, params: Vector, sent: State, kept: Nothing) -> Vector:
        g = gradient(params)
        return g / g.norm()


@dataclass(frozen=True)
class WidensTheDtype(Sound):
    def report(self, run: LocalRun, sent: State, kept: Nothing) -> tuple[Report, Nothing]:
        return Report(run.moved.double()), kept


@dataclass(frozen=True)
class ReturnsABareVector(Sound):
    def broadcast(self, server: State) -> Any:
        return (server.params,)


# `Sound` is subclassed for brevity; real algorithms are final, so the brackets are given again here
for broken in (UpdatesInPlace, ReducesOverTheStack, WidensTheDtype, ReturnsABareVector):
    broken.__orig_bases__ = Sound.__orig_bases__  # pyright: ignore[reportAttributeAccessIssue]


def test_a_sound_algorithm_of_the_users_own_passes() -> None:
    assert violations(Sound()) == []


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (UpdatesInPlace, "update must not change what it is given"),
        (ReducesOverTheStack, "direction on a stack"),
        (WidensTheDtype, "report must keep torch.float32"),
        (ReturnsABareVector, "broadcast must return State"),
    ],
)
def test_a_broken_algorithm_is_told_what_it_breaks(broken: type[Sound], said: str) -> None:
    assert any(said in violation for violation in violations(broken()))


def test_a_class_without_its_messages_is_refused() -> None:
    class Bare(Algorithm):  # pyright: ignore[reportMissingTypeArgument]
        pass

    with pytest.raises(TypeError, match="four NamedTuples"):
        messages(Bare)
