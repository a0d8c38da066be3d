"""Check on small example vectors that an algorithm follows the contract; used by tests and by `fedcm check`.

frozen           hyperparameters cannot change during a run
picklable        the algorithm and its messages can travel between processes
pure             no function changes its arguments, and the same input gives the same output
typed            each function returns the message type that the class names
shaped           a message has the same shapes in every round, and its `params` the shape of the model
dtype            float32 stays float32, float64 stays float64
learning         the direction of a step depends on the gradient
stackable        each row of a stack of clients (C, P) moves as that client does alone
"""

import dataclasses
import pickle
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fedcm.core.algorithm import Algorithm, Gradient, LocalRun, Round, Step, get_message_types
from fedcm.core.contract.templates import make_templates
from fedcm.system.error_messages import describe_error

_P, _CLIENTS, _STEPS, _LR, _INDEX = 7, 3, (2, 5, 3), 0.1, 1
_SHAPES = (torch.Size((2, 3)), torch.Size((1,)))  # a model with a matrix and a scalar: P = 7
_ROUND = Round(index=3, client_lr=_LR, server_lr=0.9, cohort_size=_CLIENTS, population=11, steps=10 / 3)


def find_violations(algorithm: Algorithm[Any, Any, Any, Any]) -> list[str]:
    """Return one sentence for each rule of the contract that the algorithm breaks.

    >>> from fedcm.algorithms import FedCM
    >>> find_violations(FedCM(alpha=0.1))
    []
    """
    violations: list[str] = []
    for rule, check in _CHECKS.items():
        try:
            violations += check(algorithm)
        except Exception as error:
            violations.append(f"{rule}: {describe_error(error)}")
    return violations


def _check_frozen(algorithm: Algorithm[Any, Any, Any, Any]) -> list[str]:
    if not dataclasses.is_dataclass(algorithm):
        return ["the class must be a dataclass: its fields are its hyperparameters"]
    params = getattr(type(algorithm), "__dataclass_params__", None)
    return [] if getattr(params, "frozen", False) else ["the dataclass must be frozen: @dataclass(frozen=True)"]


def _check_picklable(algorithm: Algorithm[Any, Any, Any, Any]) -> list[str]:
    if pickle.loads(pickle.dumps(algorithm)) != algorithm:
        return ["the algorithm must be equal to itself after pickling and unpickling"]
    server = _ExampleRound(algorithm, torch.float64).server
    same = _are_equal(pickle.loads(pickle.dumps(server)), server)
    return [] if same else ["the server state must be equal to itself after pickling and unpickling"]


def _check_pure_and_typed(algorithm: Algorithm[Any, Any, Any, Any]) -> list[str]:
    types = get_message_types(type(algorithm))
    violations: list[str] = []
    step = "direction" if type(algorithm).step is Algorithm.step else "step"
    for dtype in (torch.float32, torch.float64):
        example = _ExampleRound(algorithm, dtype)
        report, _ = example.report(0)
        survey = example.survey(0)
        shapes = _list_shapes(algorithm, example)
        calls: list[tuple[str, Callable[[], Any], tuple[type, ...]]] = [
            ("init_server", lambda e=example: algorithm.init_server(e.params), (types.server,)),
            ("init_client", lambda e=example: algorithm.init_client(e.params), (types.client_state,)),
            ("broadcast", lambda e=example: algorithm.broadcast(e.server), (types.broadcast,)),
            ("survey", lambda e=example: e.survey(0), (type(survey),)),
            ("merge", lambda e=example, m=survey: algorithm.merge(e.server, m, _ROUND), (types.server,)),
            ("start", lambda e=example: algorithm.start(e.sent, e.kept[0]), (Tensor,)),
            ("init_local", lambda e=example: e.init_local(0), (type(example.local[0]),)),
            (step, lambda e=example: e.step(0), (Tensor, type(example.local[0]))),
            ("report", lambda e=example: e.report(0), (types.report, types.client_state)),
            ("update", lambda e=example, r=report: algorithm.update(e.server, r, _ROUND), (types.server,)),
            ("mix", lambda e=example, r=report: algorithm.mix(e.kept[0], r, _ROUND), (types.client_state,)),
        ]
        if algorithm.expected_report(example.sent) is not None:
            calls.append(
                ("expected_report", lambda e=example: algorithm.expected_report(e.sent), (types.report,)),
            )
        for name, call, kinds in calls:
            before = [tensor.clone() for tensor in example.list_tensors()]
            first, second = call(), call()
            parts = first if len(kinds) > 1 else (first,)
            if not _are_equal(before, example.list_tensors()):
                violations.append(f"{name} must not change its arguments ({dtype})")
            if not _are_equal(_flatten(first), _flatten(second)):
                violations.append(f"{name} must give the same output for the same input ({dtype})")
            for part, kind in zip(parts, kinds, strict=True):
                if not isinstance(part, kind):
                    violations.append(f"{name} must return {kind.__name__}, got {type(part).__name__}")
            dtypes = {tensor.dtype for tensor in _flatten(first)} - {dtype}
            violations += [f"{name} must keep {dtype}, got {other}" for other in dtypes]
            for part in parts:
                violations += _check_shapes(name, part, shapes)
    return list(dict.fromkeys(violations))


def _list_shapes(algorithm: Algorithm[Any, Any, Any, Any], example: "_ExampleRound") -> dict[type, list[torch.Size]]:
    """Return the shapes of the fields of every message, as the first round has them."""
    first = make_templates(algorithm, example.params, _SHAPES)
    messages = [*first, algorithm.init_server(example.params), algorithm.init_client(example.params)]
    return {type(message): [field.shape for field in message] for message in messages}


def _check_shapes(name: str, part: Any, shapes: dict[type, list[torch.Size]]) -> list[str]:
    if isinstance(part, Tensor):
        pairs = [(part.shape, torch.Size((_P,)))]
    else:
        given = [field.shape for field in part]
        pairs = list(zip(given, shapes.get(type(part), given), strict=True))
        if hasattr(part, "params"):
            pairs.append((part.params.shape, torch.Size((_P,))))
    return [
        f"{name} must give vectors of shape {tuple(expected)}, got {tuple(given)}"
        for given, expected in pairs
        if given != expected
    ]


def _check_gradient_used(algorithm: Algorithm[Any, Any, Any, Any]) -> list[str]:
    example = _ExampleRound(algorithm, torch.float64)
    calls: list[Tensor] = []
    example.step(0, lambda x: calls.append(x) or x)
    return [] if calls else ["direction must call gradient: without it a step learns nothing from the client's data"]


def _check_stackable(algorithm: Algorithm[Any, Any, Any, Any]) -> list[str]:
    example = _ExampleRound(algorithm, torch.float64)
    stack, local, points = _stack(example.kept), _stack(example.local), torch.stack(example.points)
    steps = torch.tensor(_STEPS, dtype=torch.float64)[:, None]

    def gradient(x: Tensor) -> Tensor:
        return x @ example.curvature - example.pulls

    clients, violations = range(_CLIENTS), []
    step = Step(_INDEX, steps, _LR, _SHAPES)
    direction, after = algorithm.step(gradient, points, example.sent, stack, local, step)
    alone = [example.step(k) for k in clients]
    if not _are_close(direction, torch.stack([one for one, _ in alone])):
        violations.append("direction on a stack (C, P) must give each client's own direction as its row")
    violations += _compare_rows("step", after, [state for _, state in alone])
    start = algorithm.start(example.sent, stack).expand(_CLIENTS, _P)
    starts = torch.stack([algorithm.start(example.sent, example.kept[k]) for k in clients])
    if not _are_close(start, starts):
        violations.append("start on a stack (C, P) must give each client's own start as its row")
    run = LocalRun(start, points, (start - points) / _LR, steps, _LR, gradient, local)
    report, kept = algorithm.report(run, example.sent, stack)
    reports = [example.report(k) for k in clients]
    violations += _compare_rows("report", report, [own for own, _ in reports])
    return violations + _compare_rows("report", kept, [own for _, own in reports])


def _stack(messages: list[Any]) -> Any:
    return type(messages[0])(*[torch.stack(rows) for rows in zip(*messages, strict=True)])


def _compare_rows(name: str, stacked: Any, rows: list[Any]) -> list[str]:
    return [
        f"{name} on a stack (C, P) must give each client's own {field!r} as its row"
        for field, own in zip(stacked._fields, stacked, strict=True)
        if not _are_close(own, torch.stack([getattr(row, field) for row in rows]))
    ]


_CHECKS: dict[str, Callable[[Algorithm[Any, Any, Any, Any]], list[str]]] = {
    "frozen": _check_frozen,
    "picklable": _check_picklable,
    "pure and typed": _check_pure_and_typed,
    "learning": _check_gradient_used,
    "stackable": _check_stackable,
}


class _ExampleRound:
    """A server in the middle of training, and three clients that have taken local steps."""

    def __init__(self, algorithm: Algorithm[Any, Any, Any, Any], dtype: torch.dtype) -> None:
        generator = torch.Generator().manual_seed(5)

        def draw(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

        self.algorithm = algorithm
        self.params = draw(_P)
        self.curvature = torch.eye(_P, dtype=dtype) + 0.1 * draw(_P, _P)
        self.pulls = draw(_CLIENTS, _P)
        self.points = [draw(_P) for _ in range(_CLIENTS)]  # the clients' parameters
        types = get_message_types(type(algorithm))
        first = _require("init_server", algorithm.init_server(self.params), types.server)
        self.server = type(first)(*[field + 0.1 * draw(*field.shape).square() for field in first])
        self.sent = _require("broadcast", algorithm.broadcast(self.server), types.broadcast)
        initial = _require("init_client", algorithm.init_client(self.params), types.client_state)
        self.kept = [type(initial)(*[field + draw(*field.shape) for field in initial]) for _ in range(_CLIENTS)]
        fresh = [self.init_local(k) for k in range(_CLIENTS)]
        self.local = [type(own)(*[field + draw(*field.shape).square() for field in own]) for own in fresh]

    def init_local(self, k: int) -> Any:
        return self.algorithm.init_local(self._gradient(k), self.sent, self.kept[k])

    def survey(self, k: int) -> Any:
        return self.algorithm.survey(self._gradient(k), self.params, self.kept[k])

    def step(self, k: int, gradient: Gradient | None = None) -> tuple[Tensor, Any]:
        step = Step(_INDEX, self.params.new_tensor([_STEPS[k]]), _LR, _SHAPES)
        gradient = gradient or self._gradient(k)
        return self.algorithm.step(gradient, self.points[k], self.sent, self.kept[k], self.local[k], step)

    def report(self, k: int) -> tuple[Any, Any]:
        steps, start = self.params.new_tensor([_STEPS[k]]), self.algorithm.start(self.sent, self.kept[k])
        total = (start - self.points[k]) / _LR
        run = LocalRun(start, self.points[k], total, steps, _LR, self._gradient(k), self.local[k])
        return self.algorithm.report(run, self.sent, self.kept[k])

    def _gradient(self, k: int) -> Callable[[Tensor], Tensor]:
        return lambda x: x @ self.curvature - self.pulls[k]

    def list_tensors(self) -> list[Tensor]:
        return _flatten(
            (self.params, self.curvature, self.pulls, self.points, self.server, self.sent, self.kept, self.local)
        )


def _require(name: str, message: Any, kind: type) -> Any:
    if not isinstance(message, kind):
        raise TypeError(f"{name} must return {kind.__name__}, got {type(message).__name__}")
    return message


def _flatten(message: Any) -> list[Tensor]:
    if isinstance(message, Tensor):
        return [message]
    return [tensor for part in message for tensor in _flatten(part)]


def _are_equal(a: Any, b: Any) -> bool:
    left, right = _flatten(a), _flatten(b)
    return len(left) == len(right) and all(torch.equal(x, y) for x, y in zip(left, right, strict=True))


def _are_close(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.allclose(a, b, rtol=1e-12, atol=1e-12)
