"""Every bundled algorithm follows the contract, and each kind of violation is found."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch

from fedcm.algorithms import ALGORITHMS, FedAdam, FedAvg, FedCM, FedDyn, Scaffold
from fedcm.core.algorithm import Algorithm, Gradient, LocalRun, Nothing, Round, Vector, get_message_types
from fedcm.core.contract import find_violations, measure_costs

ROWS: list[Algorithm[Any, Any, Any, Any]] = [
    FedAvg(),
    FedCM(alpha=0.1),
    FedCM(alpha=1.0),
    FedAdam(),
    Scaffold(option="I"),
    Scaffold(option="II"),
    FedDyn(alpha=0.01),
    *(kind() for name, kind in ALGORITHMS.items() if name not in ("fedavg", "fedcm", "fedadam", "scaffold", "feddyn")),
]


@pytest.mark.parametrize("algorithm", ROWS, ids=str)
def test_bundled_algorithms_follow_the_contract(algorithm: Algorithm[Any, Any, Any, Any]) -> None:
    assert find_violations(algorithm) == []


def test_every_bundled_algorithm_has_a_row() -> None:
    assert {type(row) for row in ROWS} == set(ALGORITHMS.values())


# vectors down, up, kept; exchanges; gradients per step; full gradients: from the papers, not from the code
COSTS = {
    "fedavg": (1, 1, 0, 1, 1, 0),
    "fedprox": (1, 1, 0, 1, 1, 0),
    "fednova": (1, 1, 0, 1, 1, 0),
    "fedexp": (1, 1, 0, 1, 1, 0),
    "fedswa": (1, 1, 0, 1, 1, 0),
    "signsgd": (1, 1, 0, 1, 1, 0),
    "fedavgm": (1, 1, 0, 1, 1, 0),
    "slowmo": (1, 1, 0, 1, 1, 0),
    "fedacg": (1, 1, 0, 1, 1, 0),
    "fedcm": (2, 1, 0, 1, 1, 0),
    "fedcm-anytime": (2, 1, 0, 1, 1, 0),
    "mimelite": (2, 2, 0, 1, 1, 1),
    "mime": (3, 2, 0, 2, 2, 1),
    "ghbm": (2, 1, 0, 1, 1, 0),
    "mfl": (2, 2, 0, 1, 1, 0),
    "fedac": (2, 2, 0, 1, 1, 0),
    "scaffold": (2, 2, 1, 1, 1, 0),
    "fedmoswa": (2, 2, 1, 1, 1, 0),
    "vrl-sgd": (1, 1, 2, 1, 1, 0),
    "feddane": (2, 2, 0, 2, 1, 2),
    "feddyn": (1, 1, 1, 1, 1, 0),
    "fedpd": (1, 1, 2, 1, 1, 0),
    "fedsplit": (1, 1, 1, 1, 1, 0),
    "fedsam": (1, 1, 0, 1, 2, 0),
    "mofedsam": (2, 1, 0, 1, 2, 0),
    "fedlesam": (2, 1, 0, 1, 1, 0),
    "fedspeed": (1, 1, 1, 1, 2, 0),
    "fedsmoo": (2, 2, 2, 1, 2, 0),
    "fedadam": (1, 1, 0, 1, 1, 0),
    "fedyogi": (1, 1, 0, 1, 1, 0),
    "fedadagrad": (1, 1, 0, 1, 1, 0),
    "adaalter": (2, 2, 0, 1, 1, 0),
    "fedlada": (3, 2, 0, 1, 1, 0),
    "fedmuon": (3, 2, 0, 1, 1, 0),
    "d-sgd": (0, 1, 2, 1, 1, 0),
    "qg-dsgdm": (0, 1, 2, 1, 1, 0),
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_costs_of_a_round_are_those_of_the_paper(name: str) -> None:
    assert tuple(measure_costs(ALGORITHMS[name]())) == COSTS[name]


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
    types = get_message_types(ALGORITHMS[name])
    counts = [len(getattr(t, "_fields", ())) for t in (types.broadcast, types.client_state, types.report)]
    assert counts == [sent, kept, reported]


class State(NamedTuple):
    params: Vector


class Report(NamedTuple):
    moved: Vector


@dataclass(frozen=True)
class Correct(Algorithm[State, State, Nothing, Report]):
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
class UpdatesInPlace(Correct):
    def update(self, server: State, mean: Report, round: Round) -> State:
        return State(server.params.sub_(mean.moved))


@dataclass(frozen=True)
class ReducesOverTheStack(Correct):
    def direction(self, gradient: Gradient, params: Vector, sent: State, kept: Nothing) -> Vector:
        g = gradient(params)
        return g / g.norm()


@dataclass(frozen=True)
class WidensTheDtype(Correct):
    def report(self, run: LocalRun, sent: State, kept: Nothing) -> tuple[Report, Nothing]:
        return Report(run.moved.double()), kept


@dataclass(frozen=True)
class ReturnsABareVector(Correct):
    def broadcast(self, server: State) -> Any:
        return (server.params,)


# `Sound` is subclassed for brevity; real algorithms are final, so the brackets are given again here
for broken in (UpdatesInPlace, ReducesOverTheStack, WidensTheDtype, ReturnsABareVector):
    broken.__orig_bases__ = Correct.__orig_bases__  # pyright: ignore[reportAttributeAccessIssue]


def test_a_correct_user_algorithm_has_no_violations() -> None:
    assert find_violations(Correct()) == []


@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        (UpdatesInPlace, "update must not change its arguments"),
        (ReducesOverTheStack, "direction on a stack"),
        (WidensTheDtype, "report must keep torch.float32"),
        (ReturnsABareVector, "broadcast must return State"),
    ],
)
def test_the_violation_of_a_broken_algorithm_is_reported(broken: type[Correct], expected: str) -> None:
    assert any(expected in violation for violation in find_violations(broken()))


FUNCTIONS = ("init_server", "init_client", "broadcast", "direction", "report", "update")


def map_vectors(message: Any, change: Callable[[Vector], Vector]) -> Any:
    if isinstance(message, torch.Tensor):
        return change(message)
    parts = [map_vectors(part, change) for part in message]
    return type(message)(*parts) if hasattr(message, "_fields") else tuple(parts)


def first_vector(given: Any) -> Vector:
    return given if isinstance(given, torch.Tensor) else first_vector(given[0])


CHANGES: dict[str, Callable[[Any, tuple[Any, ...]], Any]] = {
    "must not change its arguments (torch.float32)": lambda made, given: (first_vector(given).add_(1.0), made)[1],
    "must give the same output for the same input (torch.float64)": lambda made, given: map_vectors(
        made, lambda vector: vector + torch.rand(7).to(vector)
    ),
    "must keep torch.float32, got torch.float64": lambda made, given: map_vectors(made, lambda v: v.double()),
    "must give vectors of shape (7,), got (14,)": lambda made, given: map_vectors(made, lambda v: v.repeat(2)),
}


@dataclass(frozen=True)
class Stateful(Algorithm[State, State, State, Report]):
    """An algorithm with client state; the fields choose which function is broken, and which rule it breaks."""

    function: str = ""
    how: str = ""

    def _change(self, function: str, made: Any, *given: Any) -> Any:
        return CHANGES[self.how](made, given) if function == self.function else made

    def init_server(self, params: Vector) -> State:
        return self._change("init_server", State(params.clone()), params)

    def init_client(self, params: Vector) -> State:
        return self._change("init_client", State(torch.zeros_like(params)), params)

    def broadcast(self, server: State) -> State:
        return self._change("broadcast", State(server.params.clone()), server)

    def direction(self, gradient: Gradient, params: Vector, sent: State, kept: State) -> Vector:
        return self._change("direction", gradient(params) + kept.params, params)

    def report(self, run: LocalRun, sent: State, kept: State) -> tuple[Report, State]:
        return self._change("report", (Report(run.moved), State(kept.params + run.moved)), sent)

    def update(self, server: State, mean: Report, round: Round) -> State:
        return self._change("update", State(server.params - mean.moved), server)


def test_a_correct_algorithm_with_client_state_has_no_violations() -> None:
    assert find_violations(Stateful()) == []


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("how", CHANGES)
def test_each_rule_is_checked_for_each_function(function: str, how: str) -> None:
    violations = find_violations(Stateful(function, how))
    expected = f"{function} {how}"
    if how.startswith("must give vectors"):  # another function may fail first on a vector of the wrong shape
        assert violations
        assert expected in violations or any("size" in one for one in violations), violations
    else:
        assert expected in violations


@dataclass(frozen=True)
class KeepsTheNormOfTheStack(Stateful):
    def report(self, run: LocalRun, sent: State, kept: State) -> tuple[Report, State]:
        return Report(run.moved), State(kept.params + run.moved.norm())


@dataclass(frozen=True)
class ReportsTheNormOfTheStack(Stateful):
    def report(self, run: LocalRun, sent: State, kept: State) -> tuple[Report, State]:
        return Report(run.moved / run.moved.norm()), kept


@dataclass(frozen=True)
class IsNearlyRight(Stateful):
    """Wrong on a stack by far more than rounding, but by less than torch's default tolerance."""

    def direction(self, gradient: Gradient, params: Vector, sent: State, kept: State) -> Vector:
        return gradient(params) * (1.0 + 1e-7 * (params.dim() - 1))


@dataclass(frozen=True)
class IgnoresTheGradient(Stateful):
    def direction(self, gradient: Gradient, params: Vector, sent: State, kept: State) -> Vector:
        return params


@dataclass(frozen=True)
class Fails(Stateful):
    def direction(self, gradient: Gradient, params: Vector, sent: State, kept: State) -> Vector:
        raise KeyError("x")


@dataclass(frozen=True, eq=False)
class IsUnequal(Stateful):
    __eq__, __hash__ = object.__eq__, object.__hash__  # pyright: ignore[reportAssignmentType]


class IsNotADataclass(Algorithm[State, State, State, Report]):
    init_server, init_client, broadcast = Stateful.init_server, Stateful.init_client, Stateful.broadcast
    direction, report, update = Stateful.direction, Stateful.report, Stateful.update
    _change, function = Stateful._change, ""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IsNotADataclass)

    __hash__ = None  # type: ignore[assignment]


@dataclass
class IsNotFrozen(IsNotADataclass):
    pass


for broken in (
    KeepsTheNormOfTheStack,
    ReportsTheNormOfTheStack,
    IsNearlyRight,
    IgnoresTheGradient,
    Fails,
    IsUnequal,
    IsNotFrozen,
):
    broken.__orig_bases__ = Stateful.__orig_bases__  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        (KeepsTheNormOfTheStack, ["report on a stack (C, P) must give each client's own 'params' as its row"]),
        (ReportsTheNormOfTheStack, ["report on a stack (C, P) must give each client's own 'moved' as its row"]),
        (IsNearlyRight, ["direction on a stack (C, P) must give each client's own direction as its row"]),
        (IgnoresTheGradient, ["direction must call gradient: without it a step learns nothing from the client's data"]),
        (IsUnequal, ["the algorithm must be equal to itself after pickling and unpickling"]),
        (IsNotADataclass, ["the class must be a dataclass: its fields are its hyperparameters"]),
        (IsNotFrozen, ["the dataclass must be frozen: @dataclass(frozen=True)"]),
    ],
)
def test_only_the_broken_rule_is_reported(broken: type[Stateful], expected: list[str]) -> None:
    assert find_violations(broken()) == expected


def test_an_exception_is_reported_and_the_other_checks_still_run() -> None:
    violations = find_violations(Fails())
    assert [one.split(":")[0] for one in violations] == ["pure and typed", "learning", "stackable"]
    assert all("KeyError: 'x'" in one and "test_contract.py, line" in one for one in violations)


def test_a_class_without_message_types_raises() -> None:
    class Bare(Algorithm):  # pyright: ignore[reportMissingTypeArgument]
        pass

    with pytest.raises(TypeError, match="four NamedTuples"):
        get_message_types(Bare)
