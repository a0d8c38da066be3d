"""Check on small example vectors that an algorithm follows the contract; used by tests and by `fedcm check`.

frozen           hyperparameters cannot change during a run
picklable        the algorithm and its messages can travel between processes
pure             no function changes its arguments, and the same input gives the same output
typed            each function returns the message type that the class names, with vectors of the model's shape
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

from fedcm.core.algorithm import Algorithm, LocalRun, Round, get_message_types
from fedcm.system.error_messages import describe_error

_P, _CLIENTS, _STEPS, _LR = 7, 3, (2, 5, 3), 0.1
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
    for dtype in (torch.float32, torch.float64):
        example = _ExampleRound(algorithm, dtype)
        report, _ = example.report(0)
        calls: list[tuple[str, Callable[[], Any], tuple[type, ...]]] = [
            ("init_server", lambda e=example: algorithm.init_server(e.params), (types.server,)),
            ("init_client", lambda e=example: algorithm.init_client(e.params), (types.client_state,)),
            ("broadcast", lambda e=example: algorithm.broadcast(e.server), (types.broadcast,)),
            ("direction", lambda e=example: (e.direction(0),), (tuple,)),
            ("report", lambda e=example: e.report(0), (types.report, types.client_state)),
            ("update", lambda e=example, r=report: algorithm.update(e.server, r, _ROUND), (types.server,)),
        ]
        for name, call, kinds in calls:
            before = [tensor.clone() for tensor in example.list_tensors()]
            first, second = call(), call()
            parts = first if name == "report" else (first,)
            if not _are_equal(before, example.list_tensors()):
                violations.append(f"{name} must not change its arguments ({dtype})")
            if not _are_equal(_flatten(first), _flatten(second)):
                violations.append(f"{name} must give the same output for the same input ({dtype})")
            for part, kind in zip(parts, kinds, strict=True):
                if not isinstance(part, kind):
                    violations.append(f"{name} must return {kind.__name__}, got {type(part).__name__}")
            for tensor in _flatten(first):
                if tensor.dtype != dtype:
                    violations.append(f"{name} must keep {dtype}, got {tensor.dtype}")
                if tensor.shape != (_P,):
                    violations.append(f"{name} must give vectors of shape ({_P},), got {tuple(tensor.shape)}")
    return list(dict.fromkeys(violations))


def _check_gradient_used(algorithm: Algorithm[Any, Any, Any, Any]) -> list[str]:
    example = _ExampleRound(algorithm, torch.float64)
    calls: list[Tensor] = []
    algorithm.direction(lambda x: calls.append(x) or x, example.points[0], example.sent, example.kept[0])
    return [] if calls else ["direction must call gradient: without it a step learns nothing from the client's data"]


def _check_stackable(algorithm: Algorithm[Any, Any, Any, Any]) -> list[str]:
    example = _ExampleRound(algorithm, torch.float64)
    stack = type(example.kept[0])(*[torch.stack(rows) for rows in zip(*example.kept, strict=True)])
    points = torch.stack(example.points)
    direction = algorithm.direction(lambda x: x @ example.curvature - example.pulls, points, example.sent, stack)
    violations = []
    if not _are_close(direction, torch.stack([example.direction(k) for k in range(_CLIENTS)])):
        violations.append("direction on a stack (C, P) must give each client's own direction as its row")
    start = example.params.expand(_CLIENTS, _P)
    steps = torch.tensor(_STEPS, dtype=torch.float64)[:, None]
    run = LocalRun(start, points, (start - points) / _LR, steps, _LR, lambda x: x @ example.curvature - example.pulls)
    report, kept = algorithm.report(run, example.sent, stack)
    alone = [example.report(k) for k in range(_CLIENTS)]
    for part, rows in ((report, [r for r, _ in alone]), (kept, [k for _, k in alone])):
        for field, stacked in zip(part._fields, part, strict=True):
            if not _are_close(stacked, torch.stack([getattr(row, field) for row in rows])):
                violations.append(f"report on a stack (C, P) must give each client's own {field!r} as its row")
    return violations


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
        first = algorithm.init_server(self.params)
        self.server = type(first)(*[field + 0.1 * draw(_P).square() for field in first])
        self.sent = algorithm.broadcast(self.server)
        initial = algorithm.init_client(self.params)
        self.kept = [type(initial)(*[field + draw(_P) for field in initial]) for _ in range(_CLIENTS)]

    def direction(self, k: int) -> Tensor:
        return self.algorithm.direction(self._gradient(k), self.points[k], self.sent, self.kept[k])

    def report(self, k: int) -> tuple[Any, Any]:
        steps = self.params.new_tensor([_STEPS[k]])
        total = (self.params - self.points[k]) / _LR
        run = LocalRun(self.params, self.points[k], total, steps, _LR, self._gradient(k))
        return self.algorithm.report(run, self.sent, self.kept[k])

    def _gradient(self, k: int) -> Callable[[Tensor], Tensor]:
        return lambda x: x @ self.curvature - self.pulls[k]

    def list_tensors(self) -> list[Tensor]:
        return _flatten((self.params, self.curvature, self.pulls, self.points, self.server, self.sent, self.kept))


def _flatten(message: Any) -> list[Tensor]:
    if isinstance(message, Tensor):
        return [message]
    return [tensor for part in message for tensor in _flatten(part)]


def _are_equal(a: Any, b: Any) -> bool:
    left, right = _flatten(a), _flatten(b)
    return len(left) == len(right) and all(torch.equal(x, y) for x, y in zip(left, right, strict=True))


def _are_close(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.allclose(a, b, rtol=1e-12, atol=1e-12)
