"""The minibatches of a client's round: a pure function of (seed, round, client)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor

from fedcm.data.dataset import Examples
from fedcm.rng import Purpose, make_generator


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

    def passes(self, examples: int) -> list[list[int]]:
        """The sizes of a round's minibatches, pass after pass over the client's examples; the last may be cut short.

        >>> LocalWork(batch_size=50, steps=4).passes(120)
        [[50, 50, 20], [50]]
        """
        whole = [min(self.batch_size, examples - start) for start in range(0, examples, self.batch_size)]
        steps = self.count(examples)
        return [whole[: steps - done] for done in range(0, steps, len(whole))]

    def batches(self, data: Examples, seed: int, round: int, client: int) -> Iterator[Examples]:
        for index in self.indices(data.size, seed, round, client, data.labels.device):
            yield Examples(take(data.features, index), data.labels.index_select(0, index))

    def indices(
        self, examples: int, seed: int, round: int, client: int, device: torch.device | None = None
    ) -> Iterator[Tensor]:
        """The minibatches as indices into the client's examples."""
        draw = make_generator(seed, Purpose.BATCHES, round, client)
        remaining = self.count(examples)
        while remaining:
            order = torch.from_numpy(draw.permutation(examples)).to(device)
            for index in order.split(self.batch_size)[:remaining]:
                yield index
                remaining -= 1

    def stacked(self, sizes: np.ndarray, seed: int, round: int, clients: Sequence[int]) -> tuple[Tensor, Tensor]:
        """The same minibatches of several clients: indices (C, K, b) and the examples' weights, 1/b in a batch of b and
        0 for padding, where a batch or a client's round is shorter than the others."""
        wide, passes = min(self.batch_size, int(sizes.max())), []
        for size, client in zip(sizes.tolist(), clients, strict=True):
            draw, steps = make_generator(seed, Purpose.BATCHES, round, client), self.count(size)
            a_pass = -(-size // self.batch_size)
            rows = np.full((-(-steps // a_pass), a_pass * wide), -1)
            for row in rows:
                row[:size] = draw.permutation(size)
            passes.append(rows.reshape(-1, wide)[:steps])
        index = np.full((len(passes), max(len(rows) for rows in passes), wide), -1)
        for own, rows in zip(index, passes, strict=True):
            own[: len(rows)] = rows
        there = index >= 0
        weights = there / np.maximum(there.sum(2, keepdims=True), 1)
        return torch.from_numpy(np.maximum(index, 0)), torch.from_numpy(weights)


def take(features: Tensor, index: Tensor) -> Tensor:
    """The rows at `index`; images in channels_last stay so, and are copied a whole image at a time."""
    if features.dim() == 4 and features.is_contiguous(memory_format=torch.channels_last):
        return features.permute(0, 2, 3, 1).index_select(0, index).permute(0, 3, 1, 2)
    return features.index_select(0, index)
