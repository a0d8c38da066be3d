"""Every algorithm keeps the contract, and what breaks it is found."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch

from fedcm.algorithms import ALGORITHMS, FedAdam, FedAvg, FedCM, FedDyn, Scaffold
from fedcm.core.algorithm import Algorithm, Gradient, LocalRun, Nothing, Round, Vector, messages
from fedcm.core.contract import find_violations

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
    assert find_violations(algorithm) == []


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
    assert find_violations(Sound()) == []


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
    assert any(said in violation for violation in find_violations(broken()))


FUNCTIONS = ("init_server", "init_client", "broadcast", "direction", "report", "update")


def in_every_vector(message: Any, change: Callable[[Vector], Vector]) -> Any:
    if isinstance(message, torch.Tensor):
        return change(message)
    parts = [in_every_vector(part, change) for part in message]
    return type(message)(*parts) if hasattr(message, "_fields") else tuple(parts)


def first_vector(given: Any) -> Vector:
    return given if isinstance(given, torch.Tensor) else first_vector(given[0])


CHANGES: dict[str, Callable[[Any, tuple[Any, ...]], Any]] = {
    "must not change what it is given (torch.float32)": lambda made, given: (first_vector(given).add_(1.0), made)[1],
    "must give the same output for the same input (torch.float64)": lambda made, given: in_every_vector(
        made, lambda vector: vector + torch.rand(7).to(vector)
    ),
    "must keep torch.float32, got torch.float64": lambda made, given: in_every_vector(made, lambda v: v.double()),
    "must give vectors of shape (7,), got (14,)": lambda made, given: in_every_vector(made, lambda v: v.repeat(2)),
}


@dataclass(frozen=True)
class Keeping(Algorithm[State, State, State, Report]):
    """Every function gives a vector; which one is broken, and how, is said by the fields."""

    function: str = ""
    how: str = ""

    def _given(self, function: str, made: Any, *given: Any) -> Any:
        return CHANGES[self.how](made, given) if function == self.function else made

    def init_server(self, params: Vector) -> State:
        return self._given("init_server", State(params.clone()), params)

    def init_client(self, params: Vector) -> State:
        return self._given("init_client", State(torch.zeros_like(params)), params)

    def broadcast(self, server: State) -> State:
        return self._given("broadcast", State(server.params.clone()), server)

    def direction(self, gradient: Gradient, params: Vector, sent: State, kept: State) -> Vector:
        return self._given("direction", gradient(params) + kept.params, params)

    def report(self, run: LocalRun, sent: State, kept: State) -> tuple[Report, State]:
        return self._given("report", (Report(run.moved), State(kept.params + run.moved)), sent)

    def update(self, server: State, mean: Report, round: Round) -> State:
        return self._given("update", State(server.params - mean.moved), server)


def test_an_algorithm_that_keeps_something_can_be_sound() -> None:
    assert find_violations(Keeping()) == []


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("how", CHANGES)
def test_each_function_is_held_to_each_part_of_the_contract(function: str, how: str) -> None:
    found = find_violations(Keeping(function, how))
    said = f"{function} {how}"
    if how.startswith("must give vectors"):  # of another shape other functions may fail first
        assert found
        assert said in found or any("size" in one for one in found), found
    else:
        assert said in found


@dataclass(frozen=True)
class KeepsTheNormOfTheStack(Keeping):
    def report(self, run: LocalRun, sent: State, kept: State) -> tuple[Report, State]:
        return Report(run.moved), State(kept.params + run.moved.norm())


@dataclass(frozen=True)
class ReportsTheNormOfTheStack(Keeping):
    def report(self, run: LocalRun, sent: State, kept: State) -> tuple[Report, State]:
        return Report(run.moved / run.moved.norm()), kept


@dataclass(frozen=True)
class IsNearlyRight(Keeping):
    """On a stack off by far more than rounding, and by less than torch's usual tolerance."""

    def direction(self, gradient: Gradient, params: Vector, sent: State, kept: State) -> Vector:
        return gradient(params) * (1.0 + 1e-7 * (params.dim() - 1))


@dataclass(frozen=True)
class IsNoGradient(Keeping):
    def direction(self, gradient: Gradient, params: Vector, sent: State, kept: State) -> Vector:
        return params


@dataclass(frozen=True)
class Fails(Keeping):
    def direction(self, gradient: Gradient, params: Vector, sent: State, kept: State) -> Vector:
        raise KeyError("x")


@dataclass(frozen=True, eq=False)
class IsUnequal(Keeping):
    __eq__, __hash__ = object.__eq__, object.__hash__  # pyright: ignore[reportAssignmentType]


class IsNoDataclass(Algorithm[State, State, State, Report]):
    init_server, init_client, broadcast = Keeping.init_server, Keeping.init_client, Keeping.broadcast
    direction, report, update = Keeping.direction, Keeping.report, Keeping.update
    _given, function = Keeping._given, ""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IsNoDataclass)

    __hash__ = None  # type: ignore[assignment]


@dataclass
class IsThawed(IsNoDataclass):
    pass


for broken in (
    KeepsTheNormOfTheStack,
    ReportsTheNormOfTheStack,
    IsNearlyRight,
    IsNoGradient,
    Fails,
    IsUnequal,
    IsThawed,
):
    broken.__orig_bases__ = Keeping.__orig_bases__  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (KeepsTheNormOfTheStack, ["report on a stack (C, P) must give each client's own 'params' as its row"]),
        (ReportsTheNormOfTheStack, ["report on a stack (C, P) must give each client's own 'moved' as its row"]),
        (IsNearlyRight, ["direction on a stack (C, P) must give each client's own direction as its row"]),
        (IsNoGradient, ["direction must call gradient: without it a step learns nothing from the client's data"]),
        (IsUnequal, ["the algorithm must come back equal from a pickle"]),
        (IsNoDataclass, ["the class must be a dataclass: its fields are its hyperparameters"]),
        (IsThawed, ["the dataclass must be frozen: @dataclass(frozen=True)"]),
    ],
)
def test_what_is_broken_is_all_that_is_told(broken: type[Keeping], said: list[str]) -> None:
    assert find_violations(broken()) == said


def test_a_function_that_fails_is_told_with_its_error_and_the_other_checks_go_on() -> None:
    found = find_violations(Fails())
    assert [one.split(":")[0] for one in found] == ["pure and typed", "asks for gradients", "stackable"]
    assert all("KeyError: 'x'" in one and "test_contract.py, line" in one for one in found)


def test_a_class_without_its_messages_is_refused() -> None:
    class Bare(Algorithm):  # pyright: ignore[reportMissingTypeArgument]
        pass

    with pytest.raises(TypeError, match="four NamedTuples"):
        messages(Bare)
