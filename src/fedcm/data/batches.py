"""The minibatches of a client's round: a pure function of (seed, round, client)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from fedcm.chance import Purpose, generator
from fedcm.data.dataset import Examples


@final
@dataclass(frozen=True)
class LocalWork:
    """How much a client does in a round: passes over its data, or a number of steps. The last batch of a pass may be
    smaller than the others; no example is left out."""

    batch_size: int = 50
    epochs: int = 1
    steps: int | None = None  # instead of epochs: exactly so many, going round the data as often as that takes

    def __post_init__(self) -> None:
        for name in ("batch_size", "epochs", "steps"):
            count = getattr(self, name)
            if count is not None and count < 1:
                raise ValueError(f"{name} must be at least 1, got {count}")

    def count(self, examples: int) -> int:
        """
        >>> LocalWork(batch_size=50, epochs=5).count(120)
        15
        """
        return self.steps if self.steps is not None else self.epochs * -(-examples // self.batch_size)

    def batches(self, data: Examples, seed: int, round: int, client: int) -> Iterator[Examples]:
        for index in self.indices(data.size, seed, round, client):
            yield Examples(data.features[index], data.labels[index])

    def indices(self, examples: int, seed: int, round: int, client: int) -> Iterator[Tensor]:
        """The minibatches as indices into the client's examples."""
        draw = generator(seed, Purpose.BATCHES, round, client)
        remaining = self.count(examples)
        while remaining:
            order = torch.from_numpy(draw.permutation(examples))
            for index in order.split(self.batch_size)[:remaining]:
                yield index
                remaining -= 1
