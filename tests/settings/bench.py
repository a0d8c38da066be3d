"""Run small experiments from their TOML text, in this process, and collect what they write."""

import copy
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import literal
import numpy as np
import pytest
import tomli_w
import torch
from reference import Batch
from torch import Tensor
from transcriptions import TRANSCRIPTIONS

from fedcm.config.experiment import load_experiment_file
from fedcm.runs.session import Session

SIZES = (3, 9, 4, 8, 16, 5)  # examples per client; with batches of 4, K_i = 1, 3, 1, 2, 4, 2
FEATURES, CLASSES, TESTED = 6, 4, 60
CLOSE = 2e-5  # float32 against float64 over a few rounds, on vectors of size ~1
APART = 1e-3  # what a setting must change at least

BASE: dict[str, Any] = {
    "name": "small",
    "rounds": 4,
    "seed": 11,  # not the number of any purpose, so that swapping the two shows
    "participation": {"kind": "fixed", "clients": 3},
    "model": {"name": "linear"},
    "algorithm": {"name": "fedcm", "alpha": 0.3},
    "client": {"epochs": 2, "batch_size": 4, "lr": 0.3},
    "engine": {"stack": 1, "layout": "channels_last", "compile": "off"},
}


@dataclass
class Trained:
    """A finished run."""

    table: dict[str, Any]
    run: Session
    lines: list[dict[str, Any]]  # metrics.jsonl
    servers: list[Any] = field(default_factory=list)  # the server's state after every round
    saved: list[list[int]] = field(default_factory=list)  # after every round, the rounds of the stored checkpoints

    @property
    def folder(self) -> Path:
        return self.run.folder.path

    @property
    def cohorts(self) -> list[list[int]]:
        return [line["clients"] for line in self.lines]

    @property
    def params(self) -> Tensor:
        return self.servers[-1].params

    @property
    def summary(self) -> dict[str, Any]:
        return json.loads((self.folder / "summary.json").read_text())

    @property
    def clients(self) -> list[Batch]:
        """The data of each client in the run."""
        data = self.run.setup.runner.data
        return [(own.features, own.labels) for own in map(data.client, range(data.population))]


class Bench:
    """Runs experiments in the folder of a test."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.monkeypatch = monkeypatch
        self.clients = make_clients()
        self.tested = make_clients(sizes=(TESTED,), seed=1)[0]
        self.source = self.clients_folder("clients", self.clients)
        self._numbers = count()

    def table(self, **changes: Any) -> dict[str, Any]:
        return copy.deepcopy(BASE | {"data": {"source": self.source}} | changes)

    def train(self, table: dict[str, Any], name: str | None = "") -> Trained:
        """Run an experiment from its TOML text; with `name` None the run chooses its folder's name."""
        path = self.folder / "experiment.toml"
        path.write_text(tomli_w.dumps(table))
        name = f"run-{next(self._numbers)}" if name == "" else name
        run = Session.start(load_experiment_file(path), self.folder / "runs", name)
        trained = Trained(table, run, [])
        with run:
            for _ in run.rounds():
                trained.servers.append(run.server)
                checkpoints = run.folder.checkpoints.glob("round-*.json")
                trained.saved.append(sorted(int(note.stem[6:]) for note in checkpoints))
        trained.lines = [json.loads(line) for line in (trained.folder / "metrics.jsonl").read_text().splitlines()]
        return trained

    def clients_folder(self, name: str, clients: Sequence[Batch]) -> str:
        """Write one .npz file per client, and test.npz."""
        folder = self.folder / name
        folder.mkdir()
        for number, (x, y) in enumerate(clients):
            np.savez(folder / f"client-{number}.npz", x=x.numpy(), y=y.numpy())
        np.savez(folder / "test.npz", x=self.tested[0].numpy(), y=self.tested[1].numpy())
        return str(folder)

    def whole_file(self, name: str, shape: tuple[int, ...] = (FEATURES,), examples: int = 240) -> str:
        """Write an .npz file without a split."""
        (x, y), (x_test, y_test) = (make_clients((size,), seed, shape)[0] for seed, size in ((5, examples), (6, 40)))
        path = self.folder / f"{name}.npz"
        np.savez(path, x_train=x.numpy(), y_train=y.numpy(), x_test=x_test.numpy(), y_test=y_test.numpy())
        return str(path)


def make_clients(
    sizes: Sequence[int] = SIZES, seed: int = 0, shape: tuple[int, ...] = (FEATURES,), classes: int = CLASSES
) -> list[Batch]:
    """Clients that differ; the last class is the largest label of all of them together."""
    truth = np.random.default_rng(9).normal(size=(int(np.prod(shape)), classes))
    draw = np.random.default_rng(seed)
    made = []
    for size in sizes:
        x = (draw.normal(size=(size, *shape)) + 0.5 * draw.normal(size=shape)).astype(np.float32)
        y = (x.reshape(size, -1) @ truth).argmax(1)
        y[0] = classes - 1
        made.append((torch.from_numpy(x), torch.from_numpy(y)))
    return made


def assert_literal_trajectory(trained: Trained, clients: Sequence[Batch], close: float = CLOSE) -> None:
    """Check every vector of the server after every round against the literal run."""
    expected = literal.run_literally(trained.table | {"classes": CLASSES}, clients, trained.cohorts)
    letters = TRANSCRIPTIONS[trained.table["algorithm"]["name"]].letters
    for index, (server, variables) in enumerate(zip(trained.servers, expected, strict=True)):
        for letter, name in letters.items():
            apart = float((getattr(server, name) - variables[letter]).abs().max())
            assert apart <= close, f"{name} after round {index} differs by {apart:.3g}"


def assert_different(one: Trained, other: Trained) -> None:
    apart = float((one.params - other.params).abs().max())
    assert apart >= APART, f"the parameters differ by only {apart:.3g}"
