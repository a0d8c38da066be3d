"""A client's batches as tensors, shuffled every epoch: one gather per batch, no copying of single examples."""

from collections.abc import Iterator

import numpy as np
import torch


class Batches:
    """Shuffled batches of one client's examples."""

    def __init__(self, x: np.ndarray, y: np.ndarray, size: int) -> None:
        self.x, self.y, self.size = torch.from_numpy(x), torch.from_numpy(y), size

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for index in torch.randperm(len(self.y)).split(self.size):
            yield self.x[index], self.y[index]
