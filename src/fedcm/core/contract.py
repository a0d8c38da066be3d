"""Does an algorithm keep the contract? Checked on made-up vectors: for tests, and for `fedcm check`.

pure             no function changes what it was given, and the same input gives the same output
typed            each function returns the message that the class names, with vectors of the model's shape
learning         a step's direction asks for the gradient
stackable        a stack of clients (C, P) moves as its rows do one by one
dtype            float32 stays float32, float64 stays float64
picklable        the algorithm and its messages travel between processes
frozen           hyperparameters cannot change during a run
"""

import dataclasses
import pickle
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fedcm.core.algorithm import Algorithm, LocalRun, Round, messages
from fedcm.system.faults import describe_error

_P, _CLIENTS, _STEPS, _LR = 7, 3, (2, 5, 3), 0.1
_ROUND = Round(index=3, client_lr=_LR, server_lr=0.9, cohort=_CLIENTS, population=11, steps=10 / 3)


def find_violations(algorithm: Algorithm[Any, Any, Any, Any]) -> list[str]:
    """Sentences, one for each part of the contract that is broken; none for a sound algorithm.

    >>> from fedcm.algorithms import FedCM
    >>> violations(FedCM(alpha=0.1))
    []
    """
    found: list[str] = []
    for check in (_frozen, _picklable, _pure_and_typed, _asks_for_gradients, _stackable):
        try:
            found += check(algorithm)
        except Exception as error:
            found.append(f"{check.__name__.strip('_').replace('_', ' ')}: {describe_error(error)}")
    return found


def _frozen(algorithm: Algorithm[Any, Any, Any, Any]) -> list[str]:
    if not dataclasses.is_dataclass(algorithm):
        return ["the class must be a dataclass: its fields are its hyperparameters"]
    params = getattr(type(algorithm), "__dataclass_params__", None)
    return [] if getattr(params, "frozen", False) else ["the dataclass must be frozen: @dataclass(frozen=True)"]


def _picklable(algorithm: Algorithm[Any, Any, Any, Any]) -> list[str]:
    if pickle.loads(pickle.dumps(algorithm)) != algorithm:
        return ["the algorithm must come back equal from a pickle"]
    server = _Scene(algorithm, torch.float64).server
    return [] if _equal(pickle.loads(pickle.dumps(server)), server) else ["the server state must survive a pickle"]


def _pure_and_typed(algorithm: Algorithm[Any, Any, Any, Any]) -> list[str]:
    types = messages(type(algorithm))
    found: list[str] = []
    for dtype in (torch.float32, torch.float64):
        scene = _Scene(algorithm, dtype)
        report, _ = scene.report(0)
        calls: list[tuple[str, Callable[[], Any], tuple[type, ...]]] = [
            ("init_server", lambda s=scene: algorithm.init_server(s.params), (types.server,)),
            ("init_client", lambda s=scene: algorithm.init_client(s.params), (types.kept,)),
            ("broadcast", lambda s=scene: algorithm.broadcast(s.server), (types.sent,)),
            ("direction", lambda s=scene: (s.direction(0),), (tuple,)),
            ("report", lambda s=scene: s.report(0), (types.reported, types.kept)),
            ("update", lambda s=scene, r=report: algorithm.update(s.server, r, _ROUND), (types.server,)),
        ]
        for name, call, kinds in calls:
            before = _copied(scene.everything())
            first, second = call(), call()
            parts = first if name == "report" else (first,)
            if not _equal(before, scene.everything()):
                found.append(f"{name} must not change what it is given ({dtype})")
            if not _equal(_tensors(first), _tensors(second)):
                found.append(f"{name} must give the same output for the same input ({dtype})")
            for part, kind in zip(parts, kinds, strict=True):
                if not isinstance(part, kind):
                    found.append(f"{name} must return {kind.__name__}, got {type(part).__name__}")
            for tensor in _tensors(first):
                if tensor.dtype != dtype:
                    found.append(f"{name} must keep {dtype}, got {tensor.dtype}")
                if tensor.shape != (_P,):
                    found.append(f"{name} must give vectors of shape ({_P},), got {tuple(tensor.shape)}")
    return list(dict.fromkeys(found))


def _asks_for_gradients(algorithm: Algorithm[Any, Any, Any, Any]) -> list[str]:
    scene = _Scene(algorithm, torch.float64)
    asked: list[Tensor] = []
    algorithm.direction(lambda x: asked.append(x) or x, scene.here[0], scene.sent, scene.kept[0])
    return [] if asked else ["direction must call gradient: without it a step learns nothing from the client's data"]


def _stackable(algorithm: Algorithm[Any, Any, Any, Any]) -> list[str]:
    scene = _Scene(algorithm, torch.float64)
    stack = type(scene.kept[0])(*[torch.stack(rows) for rows in zip(*scene.kept, strict=True)])
    here = torch.stack(scene.here)
    direction = algorithm.direction(lambda x: x @ scene.curvature - scene.pulls, here, scene.sent, stack)
    found = []
    if not _close(direction, torch.stack([scene.direction(k) for k in range(_CLIENTS)])):
        found.append("direction on a stack (C, P) must give each client's own direction as its row")
    start = scene.params.expand(_CLIENTS, _P)
    steps = torch.tensor(_STEPS, dtype=torch.float64)[:, None]
    run = LocalRun(start, here, (start - here) / _LR, steps, _LR, lambda x: x @ scene.curvature - scene.pulls)
    report, kept = algorithm.report(run, scene.sent, stack)
    alone = [scene.report(k) for k in range(_CLIENTS)]
    for part, rows in ((report, [r for r, _ in alone]), (kept, [k for _, k in alone])):
        for field, stacked in zip(part._fields, part, strict=True):
            if not _close(stacked, torch.stack([getattr(row, field) for row in rows])):
                found.append(f"report on a stack (C, P) must give each client's own {field!r} as its row")
    return found


class _Scene:
    """A server in the middle of training and three clients that have moved."""

    def __init__(self, algorithm: Algorithm[Any, Any, Any, Any], dtype: torch.dtype) -> None:
        draw = torch.Generator().manual_seed(5)

        def vector(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=draw, dtype=torch.float64).to(dtype)

        self.algorithm = algorithm
        self.params = vector(_P)
        self.curvature = torch.eye(_P, dtype=dtype) + 0.1 * vector(_P, _P)
        self.pulls = vector(_CLIENTS, _P)
        self.here = [vector(_P) for _ in range(_CLIENTS)]
        first = algorithm.init_server(self.params)
        self.server = type(first)(*[field + 0.1 * vector(_P).square() for field in first])
        self.sent = algorithm.broadcast(self.server)
        unseen = algorithm.init_client(self.params)
        self.kept = [type(unseen)(*[field + vector(_P) for field in unseen]) for _ in range(_CLIENTS)]

    def direction(self, k: int) -> Tensor:
        return self.algorithm.direction(self._gradient(k), self.here[k], self.sent, self.kept[k])

    def report(self, k: int) -> tuple[Any, Any]:
        steps = self.params.new_tensor([_STEPS[k]])
        total = (self.params - self.here[k]) / _LR
        run = LocalRun(self.params, self.here[k], total, steps, _LR, self._gradient(k))
        return self.algorithm.report(run, self.sent, self.kept[k])

    def _gradient(self, k: int) -> Callable[[Tensor], Tensor]:
        return lambda x: x @ self.curvature - self.pulls[k]

    def everything(self) -> list[Tensor]:
        return _tensors((self.params, self.curvature, self.pulls, self.here, self.server, self.sent, self.kept))


def _tensors(message: Any) -> list[Tensor]:
    if isinstance(message, Tensor):
        return [message]
    return [tensor for part in message for tensor in _tensors(part)]


def _copied(tensors: list[Tensor]) -> list[Tensor]:
    return [tensor.clone() for tensor in tensors]


def _equal(a: Any, b: Any) -> bool:
    left, right = _tensors(a), _tensors(b)
    return len(left) == len(right) and all(torch.equal(x, y) for x, y in zip(left, right, strict=True))


def _close(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.allclose(a, b, rtol=1e-12, atol=1e-12)
