"""The minibatches of one client in one round, as a pure function of (seed, round, client)."""

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
    """How much a client computes per round: a number of passes over its data, or a number of steps.

    The last batch of a pass may be smaller than the others; no example is left out.

    Attributes:
        batch_size: Examples per batch.
        epochs: Passes over the client's data.
        steps: The exact number of batches, over as many passes as needed. If given, `epochs` is ignored.
    """

    batch_size: int = 50
    epochs: int = 1
    steps: int | None = None

    def __post_init__(self) -> None:
        for name in ("batch_size", "epochs", "steps"):
            count = getattr(self, name)
            if count is not None and count < 1:
                raise ValueError(f"{name} must be at least 1, got {count}")

    def count_steps(self, examples: int) -> int:
        """Return the number of batches per round of a client with this many examples.

        >>> LocalWork(batch_size=50, epochs=5).count_steps(120)
        15
        """
        return self.steps if self.steps is not None else self.epochs * -(-examples // self.batch_size)

    def list_batch_sizes(self, examples: int) -> list[list[int]]:
        """Return the sizes of a round's batches, one list per pass; the last pass may be incomplete.

        >>> LocalWork(batch_size=50, steps=4).list_batch_sizes(120)
        [[50, 50, 20], [50]]
        """
        full_pass = [min(self.batch_size, examples - start) for start in range(0, examples, self.batch_size)]
        steps = self.count_steps(examples)
        return [full_pass[: steps - done] for done in range(0, steps, len(full_pass))]

    def draw_batches(self, data: Examples, seed: int, round: int, client: int) -> Iterator[Examples]:
        """Yield the batches of one client in one round."""
        for index in self.draw_indices(data.size, seed, round, client, data.labels.device):
            yield Examples(select_rows(data.features, index), data.labels.index_select(0, index))

    def draw_indices(
        self, examples: int, seed: int, round: int, client: int, device: torch.device | None = None
    ) -> Iterator[Tensor]:
        """Yield the batches as indices into the client's examples."""
        generator = make_generator(seed, Purpose.BATCHES, round, client)
        remaining = self.count_steps(examples)
        while remaining:
            order = torch.from_numpy(generator.permutation(examples)).to(device)
            for index in order.split(self.batch_size)[:remaining]:
                yield index
                remaining -= 1

    def draw_stacked_indices(
        self, sizes: np.ndarray, seed: int, round: int, clients: Sequence[int]
    ) -> tuple[Tensor, Tensor]:
        """Draw the same batches for several clients at once.

        Args:
            sizes: The number of examples of each client.
            seed: The run's seed.
            round: The round's index.
            clients: The clients' indices.

        Returns:
            Indices (C, K, b) into each client's examples, and weights of the same shape: 1/n in a batch of n examples,
            and 0 for padding, where a batch or a client's round is shorter than the longest.
        """
        width, batches = min(self.batch_size, int(sizes.max())), []
        for size, client in zip(sizes.tolist(), clients, strict=True):
            generator, steps = make_generator(seed, Purpose.BATCHES, round, client), self.count_steps(size)
            per_pass = -(-size // self.batch_size)
            passes = np.full((-(-steps // per_pass), per_pass * width), -1)
            for one_pass in passes:
                one_pass[:size] = generator.permutation(size)
            batches.append(passes.reshape(-1, width)[:steps])
        index = np.full((len(batches), max(len(rows) for rows in batches), width), -1)
        for stacked, rows in zip(index, batches, strict=True):
            stacked[: len(rows)] = rows
        is_example = index >= 0
        weights = is_example / np.maximum(is_example.sum(2, keepdims=True), 1)
        return torch.from_numpy(np.maximum(index, 0)), torch.from_numpy(weights)


def select_rows(features: Tensor, index: Tensor) -> Tensor:
    """Return the rows at `index`; images in channels_last keep that layout and are copied one whole image at a time."""
    if features.dim() == 4 and features.is_contiguous(memory_format=torch.channels_last):
        return features.permute(0, 2, 3, 1).index_select(0, index).permute(0, 3, 1, 2)
    return features.index_select(0, index)
