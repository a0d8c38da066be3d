"""A resume with another lambda of the same name is rejected, although both are recorded as `<lambda>`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import fedcm

DRAW = torch.Generator().manual_seed(4)
CLIENTS = [(torch.randn(12, 4, generator=DRAW), torch.randint(3, (12,), generator=DRAW)) for _ in range(3)]

# by argument: a function that makes two values, which differ only in what a lambda computes
PAIRS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "loss": (
        lambda: lambda o, y: functional.cross_entropy(o, y),
        lambda: lambda o, y: 2 * functional.cross_entropy(o, y),
    ),
    "augment[0]": (
        lambda: [lambda batch, draw: (batch[0] + 1, batch[1])],
        lambda: [lambda batch, draw: (batch[0] + 2, batch[1])],
    ),
    "collate": (
        lambda: lambda rows: tuple(map(torch.stack, zip(*rows, strict=True))),
        lambda: lambda rows: tuple(map(torch.stack, zip(*rows[::-1], strict=True))),
    ),
    "lr_schedule": (lambda: lambda t, total: 0.9**t, lambda: lambda t, total: 0.8**t),
    "steps": (lambda: lambda round, client: 1, lambda: lambda round, client: 2),
    "metric own": (
        lambda: [{"name": lambda o, y: float(o.mean()), "label": "own"}],
        lambda: [{"name": lambda o, y: float(o.amax()), "label": "own"}],
    ),
}


def make(use: str, value: Any, rounds: int = 4) -> dict[str, Any]:
    name = {"augment[0]": "augment", "metric own": "metrics"}.get(use, use)
    if use == "lr_schedule":
        value = fedcm.FunctionSchedule(value, over=8)
    return {"rounds": rounds, "test": CLIENTS[0], name: value}


@pytest.mark.parametrize("use", PAIRS)
def test_a_run_is_not_resumed_with_another_function(use: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, (first, second) = nn.Linear(4, 3), PAIRS[use]
    own, again, other = (
        fedcm.make_experiment(model, CLIENTS, fedcm.FedCM(), **make(use, value())) for value in (first, first, second)
    )
    run = fedcm.run(own, name="run", runs_dir=tmp_path, callbacks=[lambda metrics: metrics.round == 1])
    with pytest.raises(fedcm.UserError) as error:
        fedcm.resume(run.path, experiment=other)
    assert str(error.value) == (
        f"the run 'run' must be resumed with the {use} that it began with, and the code of this function differs; give "
        "the old function or start a new run"
    )
    assert fedcm.resume(run.path, experiment=again).outcome == "finished"


@pytest.mark.parametrize("use", PAIRS)
def test_a_state_is_not_resumed_with_another_function(use: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, (first, second) = nn.Linear(4, 3), PAIRS[use]
    fedcm.train(model, CLIENTS, fedcm.FedCM(), **make(use, first(), 2)).state.save(tmp_path / "state")
    state = fedcm.RunState.load(tmp_path / "state")
    with pytest.raises(fedcm.UserError, match=r"^a training must be resumed with the .* that it began with"):
        fedcm.train(model, CLIENTS, fedcm.FedCM(), **make(use, second(), 2), resume_from=state)
    fedcm.train(model, CLIENTS, fedcm.FedCM(), **make(use, first(), 2), resume_from=state)
