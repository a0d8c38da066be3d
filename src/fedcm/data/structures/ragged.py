"""Sequences of unequal lengths, stored one after another in a single tensor."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence


@final
@dataclass(frozen=True)
class Ragged:
    """n sequences, which share everything but their length.

    Attributes:
        values: (total length, …) All sequences, one after another.
        lengths: (n,) The length of each sequence.

    >>> two = Ragged.from_list([torch.tensor([1, 2, 3]), torch.tensor([4])])
    >>> len(two), two[1], two.pad(0)
    (2, tensor([4]), tensor([[1, 2, 3],
            [4, 0, 0]]))
    """

    values: Tensor
    lengths: Tensor

    @classmethod
    def from_list(cls, sequences: Sequence[Tensor]) -> "Ragged":
        """Store these sequences."""
        return cls(torch.cat(list(sequences)), torch.tensor([len(sequence) for sequence in sequences]))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that `pad` gives to all sequences together."""
        return (len(self), int(self.lengths.max()), *self.values.shape[1:])

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the values."""
        return self.values.dtype

    @property
    def device(self) -> torch.device:
        """The device of the values."""
        return self.values.device

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: Any) -> Any:
        """Return one sequence by its number, or several by a slice or a tensor of numbers."""
        ends = self.lengths.cumsum(0)
        if isinstance(index, int):
            return self.values[int(ends[index] - self.lengths[index]) : int(ends[index])]
        if isinstance(index, slice):
            index = torch.arange(len(self), device=self.device)[index]
        lengths = self.lengths[index]
        # the k-th value of a chosen sequence is at its start plus k
        starts = (ends - self.lengths)[index].repeat_interleave(lengths)
        offsets = torch.arange(int(lengths.sum()), device=self.device)
        within = offsets - (lengths.cumsum(0) - lengths).repeat_interleave(lengths)
        return Ragged(self.values[starts + within], lengths)

    def to(self, *target: Any) -> "Ragged":
        """Return the sequences with values of another dtype, or on another device."""
        device = [one for one in target if not isinstance(one, torch.dtype)]
        return Ragged(self.values.to(*target), self.lengths.to(*device) if device else self.lengths)

    def is_floating_point(self) -> bool:
        """Return whether the values are floats."""
        return self.values.is_floating_point()

    def pad(self, value: float) -> Tensor:
        """Return a tensor (n, longest length, …) with `value` after the end of each shorter sequence."""
        return pad_sequence(list(self.values.split(self.lengths.tolist())), batch_first=True, padding_value=value)
