"""A function of tensors recorded as the plain operations that it comes down to, and replayed.

`torch.func` takes a function apart anew at every call, about a millisecond in Python: more than a tiny model's whole
step. What it comes down to depends on the arguments' shapes alone, so once a shape has come often enough the operations
are recorded and called one after another. They are the same, so the bits are; this is checked where they are recorded,
and a function that does not record stays as it is.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, final

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

Function = Callable[..., tuple[Tensor, ...]]

_OFTEN = 100  # calls from which on recording pays: it takes a second or two the first time, and a twentieth after that
_SHAPES = 16  # recorded at most


@final
class RecordedFunction:
    """
    >>> doubled = Replayed(lambda x: (x + x,), often=1)
    >>> doubled(torch.ones(2)), doubled(torch.ones(2))
    ((tensor([2., 2.]),), (tensor([2., 2.]),))
    >>> doubled.recorded
    1
    """

    def __init__(self, function: Function, often: int = _OFTEN) -> None:
        self._function = function
        self._often = often
        self._calls: Counter[Any] = Counter()
        self._recordings: dict[Any, Function] = {}

    @property
    def recorded(self) -> int:
        """For how many shapes it replays."""
        return sum(recording is not self._function for recording in self._recordings.values())

    def __call__(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        shape = tuple((tensor.shape, tensor.stride(), tensor.dtype) for tensor in tensors)
        recording = self._recordings.get(shape)
        if recording is not None:
            return recording(*tensors)
        if self._calls[shape] == self._often and len(self._recordings) < _SHAPES:
            self._recordings[shape] = _recorded(self._function, tensors)
        self._calls[shape] += 1
        return self._function(*tensors)


def _recorded(function: Function, tensors: tuple[Tensor, ...]) -> Function:
    """The function itself where it cannot be recorded, or not to the bit."""
    try:
        recording = make_fx(lambda *tensors: function(*tensors))(*tensors)
        pairs = list(zip(recording(*tensors), function(*tensors), strict=True))
    except Exception:  # whatever the model does that the recorder does not know
        return function
    same = all(torch.allclose(replayed, called, rtol=0, atol=0, equal_nan=True) for replayed, called in pairs)
    return recording if same else function
