"""The reports of a round as rows of float64, read in blocks of columns, so that temporary memory stays small.

Every function goes through the rows and blocks in a fixed order. So the result has the same bits wherever it is
computed.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from fedcm.rng import Purpose, make_generator

_BLOCK = 2**18  # entries of a block, over all rows


class Block(NamedTuple):
    """Some columns of one field of all rows."""

    field: int
    columns: slice
    values: Tensor  # (rows, columns), float64; a copy, which may be changed


@final
class ReportRows:
    """The reports of a round, or the means of buckets of them: one row each, over all fields of a report."""

    def __init__(self, fields: Sequence[Tensor], buckets: Sequence[Sequence[int]] | None = None) -> None:
        """Read these fields, each with one row per report.

        Args:
            fields: The fields of the reports, each (reports, entries).
            buckets: The reports of each bucket; a row is then the mean of its bucket. By default every report is a row.
        """
        self._fields = list(fields)
        self.buckets = [[row] for row in range(len(fields[0]))] if buckets is None else [list(own) for own in buckets]

    @property
    def count(self) -> int:
        """The number of rows."""
        return len(self.buckets)

    def select(self, rows: Sequence[int]) -> "ReportRows":
        """Return some of the rows."""
        return ReportRows(self._fields, [self.buckets[row] for row in rows])

    def iterate_blocks(self) -> Iterator[Block]:
        """Yield all blocks, field after field."""
        width = max(_BLOCK // max(len(self._fields[0]), 1), 1)
        alone = all(len(own) == 1 for own in self.buckets)
        order = [own[0] for own in self.buckets]
        for number, field in enumerate(self._fields):
            for start in range(0, field.shape[1], width):
                columns = slice(start, min(start + width, field.shape[1]))
                values = field[:, columns].to(torch.float64)
                yield Block(number, columns, values[order] if alone else self._average_buckets(values))

    def _average_buckets(self, values: Tensor) -> Tensor:
        return torch.stack([values[own].sum(0) / len(own) for own in self.buckets])

    def make_zeros(self) -> list[Tensor]:
        """Return a vector of zeros for each field, in float64."""
        return [field.new_zeros(field.shape[1], dtype=torch.float64) for field in self._fields]

    def compute_distances(self, centre: Sequence[Tensor] | None = None) -> np.ndarray:
        """Return the distance of every row from a centre, by default from zero, over all fields together."""
        total = torch.zeros(self.count, dtype=torch.float64)
        for block in self.iterate_blocks():
            values = block.values if centre is None else block.values - centre[block.field][block.columns]
            total += values.square_().sum(1).cpu()
        return total.sqrt().numpy()

    def compute_pairwise_squares(self) -> np.ndarray:
        """Return the squared distance of every pair of rows, (rows, rows)."""
        total = np.zeros((self.count, self.count))
        for block in self.iterate_blocks():
            for row in range(self.count - 1):
                apart = (block.values[row + 1 :] - block.values[row]).square_().sum(1).cpu().numpy()
                total[row, row + 1 :] += apart
                total[row + 1 :, row] += apart
        return total

    def mix(self, weights: np.ndarray) -> list[Tensor]:
        """Return Σ_i weights_i · row_i for each field."""
        mixed = self.make_zeros()
        for block in self.iterate_blocks():
            own = torch.from_numpy(weights).to(block.values)[:, None]
            mixed[block.field][block.columns] = (own * block.values).sum(0)
        return mixed


def draw_buckets(reports: int, size: int, seed: int, round: int) -> list[list[int]]:
    """Draw buckets of this size, the last one possibly smaller; a pure function of (seed, round).

    Karimireddy, He & Jaggi, "Byzantine-Robust Learning on Heterogeneous Datasets via Bucketing", ICLR 2022.
    """
    if size == 1:
        return [[row] for row in range(reports)]
    order = make_generator(seed, Purpose.BUCKETS, round).permutation(reports).tolist()
    return [sorted(order[start : start + size]) for start in range(0, reports, size)]
