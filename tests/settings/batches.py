"""Rows of settings that change batches, and of the loss: each trajectory is that of a literal run."""

import sys
from collections.abc import Callable, Iterator
from typing import Any

import literal
import numpy as np
import torch
from bench import APART, CLASSES, CLOSE, Bench, Trained, assert_different, make_clients
from reference import Batch
from torch import Tensor
from transcriptions import TRANSCRIPTIONS

AUGMENTATION, FRESH_ITEMS = 13, 19
SIDE = 8

OWN_CODE = """
import torch
from bench import make_clients
from torch.utils.data import Dataset


class Noisy(Dataset):
    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.y)

    def __getitem__(self, index):
        return self.x[index] + torch.randn(()).item(), int(self.y[index])


def make_noisy():
    return [Noisy(*one) for one in make_clients()]


def double(examples):
    return torch.stack([2 * x for x, _ in examples]), torch.stack([y for _, y in examples])


def add_noise(batch, generator, scale=0.5):
    return batch.features + scale * torch.randn(batch.features.shape, generator=generator), batch.labels


def brier(outputs, labels):
    return (outputs.softmax(1) - torch.nn.functional.one_hot(labels, outputs.shape[1])).square().sum(1).mean()
"""


class Brier(literal.Softmax):
    """The squared distance of the probabilities from the label."""

    def loss(self, theta: Tensor, batch: Batch) -> Tensor:
        features, labels = batch
        outputs = literal.logits(theta, features, self.shape.classes).exp()
        wanted = torch.eye(self.shape.classes, dtype=torch.float64)[labels]
        return (outputs / outputs.sum(1, keepdim=True) - wanted).pow(2).sum(1).mean()


def write_own_code(bench: Bench) -> None:
    (bench.folder / "own_code.py").write_text(OWN_CODE)
    bench.monkeypatch.chdir(bench.folder)
    bench.monkeypatch.syspath_prepend(bench.folder)
    bench.monkeypatch.delitem(sys.modules, "own_code", raising=False)


def assert_trajectory(
    trained: Trained,
    clients: list[Batch],
    minibatches: Callable[[int, int], list[Batch]] | None = None,
    kind: type[literal.Softmax] = literal.Softmax,
) -> None:
    """Compare a run of FedCM with a literal run that has these minibatches."""
    world = literal.world_of(trained.table | {"classes": CLASSES}, clients, trained.cohorts, kind)
    if minibatches is not None:
        world.minibatches = minibatches
    start = literal.initial(trained.table["seed"], world.shape.inputs, CLASSES)
    settings = {key: value for key, value in trained.table["algorithm"].items() if key != "name"}
    expected = TRANSCRIPTIONS["fedcm"](world, start, len(trained.cohorts), settings)
    for server, variables in zip(trained.servers, expected, strict=True):
        assert float((server.params - variables["x"]).abs().max()) <= CLOSE


def compute_seed(seed: int, purpose: int, round: int, client: int, within: int) -> int:
    sequence = np.random.SeedSequence(seed, spawn_key=(purpose, round, client, within))
    return int(sequence.generate_state(1, np.uint64)[0] >> 1)


def change_batches(trained: Trained, clients: list[Batch], change: Callable[[Batch, torch.Generator], Batch]) -> Any:
    """Return the literal minibatches, each changed with the generator of its step."""
    world = literal.world_of(trained.table | {"classes": CLASSES}, clients, trained.cohorts)

    def minibatches(round: int, client: int) -> list[Batch]:
        changed = []
        for step, batch in enumerate(world.minibatches(round, client)):
            seed = compute_seed(trained.table["seed"], AUGMENTATION, round, client, step)
            changed.append(change(batch, torch.Generator().manual_seed(seed)))
        return changed

    return minibatches


def crop_and_flip(batch: Batch, generator: torch.Generator) -> Batch:
    """Shift every image by up to one pixel (an eighth of eight), then mirror it with probability 0.3."""
    images, labels = batch
    shifts = torch.randint(0, 3, (2, len(images)), generator=generator) - 1
    mirrored = torch.rand(len(images), generator=generator) < 0.3
    changed = torch.zeros_like(images)
    for k in range(len(images)):
        for row in range(SIDE):
            for column in range(SIDE):
                place = SIDE - 1 - column if mirrored[k] else column
                r, c = row + int(shifts[0, k]), place + int(shifts[1, k])
                if 0 <= r < SIDE and 0 <= c < SIDE:
                    changed[k, 0, row, column] = images[k, 0, r, c]
    return changed, labels


def augments_images(bench: Bench, setting: str) -> None:
    write_own_code(bench)
    clients = make_clients(shape=(1, SIDE, SIDE))
    bench.tested = make_clients((5,), 1, (1, SIDE, SIDE))[0]
    source, slow = bench.clients_folder("images", clients), {"epochs": 2, "batch_size": 4, "lr": 0.05}
    plain = bench.train(bench.table(data={"source": source}, client=slow))
    assert_trajectory(plain, clients)
    changes: list[Any] = ["crop", {"name": "flip", "probability": 0.3}]
    augmented = bench.train(bench.table(data={"source": source, "augment": changes}, client=slow))
    assert_trajectory(augmented, clients, change_batches(augmented, clients, crop_and_flip))
    assert_different(plain, augmented)
    own = bench.train(bench.table(data={"source": bench.source, "augment": ["own_code:add_noise"]}))

    def add_noise(batch: Batch, generator: torch.Generator) -> Batch:
        return batch[0] + 0.5 * torch.randn(batch[0].shape, generator=generator).double(), batch[1]

    assert_trajectory(own, bench.clients, change_batches(own, bench.clients, add_noise))


def makes_batches_with_the_function(bench: Bench, setting: str) -> None:
    """A function that doubles the features is a run on doubled features."""
    write_own_code(bench)
    doubled = bench.train(bench.table(data={"source": bench.source, "collate": "own_code:double"}))
    assert_trajectory(doubled, [(2 * x, y) for x, y in bench.clients])
    assert_different(doubled, bench.train(bench.table()))
    x, y = bench.tested
    expected = literal.cross_entropy(literal.logits(doubled.params.double(), 2 * x.double(), CLASSES), y)
    assert abs(doubled.lines[-1]["test_loss"] - expected) <= 1e-5


def reads_items_anew(bench: Bench, setting: str) -> None:
    """Every pass adds the noise of its own seed; without the setting, the noise of the first reading stays."""
    write_own_code(bench)
    clients = [(x.double(), y) for x, y in make_clients()]
    data = {"source": "own_code:make_noisy", "fresh": True}
    trained = bench.train(bench.table(data=data))

    def draw_passes(round: int, client: int) -> Iterator[Batch]:
        (x, y), seed = clients[client], trained.table["seed"]
        draw = literal.generator(seed, literal.BATCHES, round, client)
        for number in range(2):
            generator = torch.Generator().manual_seed(compute_seed(seed, FRESH_ITEMS, round, client, number))
            noise = torch.stack([torch.randn((), generator=generator) for _ in y]).double()
            order = draw.permutation(len(y))
            for index in (order[first : first + 4] for first in range(0, len(y), 4)):
                yield x[index] + noise[index, None], y[index]

    assert_trajectory(trained, clients, lambda round, client: list(draw_passes(round, client)))
    frozen = bench.train(bench.table(data=data | {"fresh": False}))
    assert float((frozen.params - trained.params).abs().max()) >= APART


def minimises_the_loss(bench: Bench, setting: str) -> None:
    write_own_code(bench)
    default, named, own = (
        bench.train(bench.table(model={"name": "linear", **loss}))
        for loss in ({}, {"loss": "cross_entropy"}, {"loss": "own_code:brier"})
    )
    assert torch.equal(default.params, named.params)
    assert_trajectory(default, bench.clients)
    assert_trajectory(own, bench.clients, kind=Brier)
    assert_different(default, own)
