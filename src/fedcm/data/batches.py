"""The minibatches of one client in one round, as a pure function of (seed, round, client)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor

from fedcm.data.dataset import Examples
from fedcm.data.work.amounts import WorkAmount
from fedcm.data.work.stragglers import Stragglers
from fedcm.rng import Purpose, make_generator

ReadPass = Callable[[int], Examples]


@final
@dataclass(frozen=True)
class LocalWork:
    """How much a client computes per round: a number of passes over its data, or a number of steps.

    The last batch of a pass may be smaller than the others; no example is left out.

    Attributes:
        batch_size: Examples per batch.
        epochs: Passes over the client's data: a number, or one for each client and round.
        steps: The exact number of batches, over as many passes as needed. If given, `epochs` is ignored.
        stragglers: The speeds of the clients; with the policy "partial" they limit the number of batches.
    """

    batch_size: int = 50
    epochs: int | WorkAmount = 1
    steps: int | WorkAmount | None = None
    stragglers: Stragglers | None = None

    def __post_init__(self) -> None:
        for name in ("batch_size", "epochs", "steps"):
            count = getattr(self, name)
            if isinstance(count, int) and count < 1:
                raise ValueError(f"{name} must be at least 1, got {count}")

    def plan_steps(self, examples: int, seed: int, round: int, client: int) -> int:
        """Return the number of batches that a client would do in a round without a deadline.

        Args:
            examples: The client's number of examples.
            seed: The run's seed.
            round: The round's index.
            client: The client's index.
        """
        amount = self.epochs if self.steps is None else self.steps
        if not isinstance(amount, int):
            amount = amount.draw_amount(seed, round, client)
        return amount if self.steps is not None else amount * -(-examples // self.batch_size)

    def count_steps(self, examples: int, seed: int, round: int, client: int) -> int:
        """Return the number of batches of a client in a round; a slow client may have to stop at the deadline.

        >>> LocalWork(batch_size=50, epochs=5).count_steps(120, seed=0, round=0, client=0)
        15
        """
        steps = self.plan_steps(examples, seed, round, client)
        return steps if self.stragglers is None else self.stragglers.limit_steps(steps, seed, round, client)

    def count_most_steps(self, examples: int) -> int:
        """Return the largest number of batches that a client with this many examples may do in a round."""
        amount = self.epochs if self.steps is None else self.steps
        most = amount if isinstance(amount, int) else amount.count_most()
        return most if self.steps is not None else most * -(-examples // self.batch_size)

    def list_batch_sizes(self, examples: int, steps: int) -> list[list[int]]:
        """Return the sizes of this many batches, one list per pass; the last pass may be incomplete.

        >>> LocalWork(batch_size=50).list_batch_sizes(120, steps=4)
        [[50, 50, 20], [50]]
        """
        full_pass = [min(self.batch_size, examples - start) for start in range(0, examples, self.batch_size)]
        return [full_pass[: steps - done] for done in range(0, steps, len(full_pass))]

    def draw_batches(
        self, data: Examples, seed: int, round: int, client: int, read_pass: ReadPass | None = None
    ) -> Iterator[Examples]:
        """Yield the batches of one client in one round.

        Args:
            data: All examples of the client.
            seed: The run's seed.
            round: The round's index.
            client: The client's index.
            read_pass: Returns the same examples, read anew for the pass of this number; by default all passes have
                `data`.
        """
        for number, indices in enumerate(self._draw_passes(data.size, seed, round, client, data.device)):
            examples = data if read_pass is None else read_pass(number)
            for index in indices:
                yield examples.select(index)

    def draw_indices(
        self, examples: int, seed: int, round: int, client: int, device: torch.device | None = None
    ) -> Iterator[Tensor]:
        """Yield the batches as indices into the client's examples."""
        for indices in self._draw_passes(examples, seed, round, client, device):
            yield from indices

    def _draw_passes(
        self, examples: int, seed: int, round: int, client: int, device: torch.device | None
    ) -> Iterator[Sequence[Tensor]]:
        """Yield the batches of each pass as indices; the last pass may be incomplete."""
        generator = make_generator(seed, Purpose.BATCHES, round, client)
        remaining = self.count_steps(examples, seed, round, client)
        while remaining:
            order = torch.from_numpy(generator.permutation(examples)).to(device)
            indices = order.split(self.batch_size)[:remaining]
            remaining -= len(indices)
            yield indices

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
            generator = make_generator(seed, Purpose.BATCHES, round, client)
            steps = self.count_steps(size, seed, round, client)
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
