"""Record the tensor operations of a function once, and replay them.

`torch.func` analyses a function anew at every call. That takes about a millisecond of Python: more than a whole step of
a tiny model. The resulting operations depend on the shapes of the arguments alone. So after enough calls with the same
shapes, the operations are recorded and from then on replayed. Recording checks that the replay gives the same bits; a
function that cannot be recorded is called as before.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, final

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

Function = Callable[..., tuple[Tensor, ...]]

_RECORD_AFTER = 100  # calls; the first recording takes a second or two, later ones a twentieth of that
_MAX_SHAPES = 16  # shapes that are recorded


@final
class RecordedFunction:
    """A function that is recorded for each shape of its arguments, after `record_after` calls.

    >>> doubled = RecordedFunction(lambda x: (x + x,), record_after=1)
    >>> doubled(torch.ones(2)), doubled(torch.ones(2))
    ((tensor([2., 2.]),), (tensor([2., 2.]),))
    >>> doubled.recorded_shapes
    1
    """

    def __init__(self, function: Function, record_after: int = _RECORD_AFTER) -> None:
        self._function = function
        self._record_after = record_after
        self._calls: Counter[Any] = Counter()
        self._recordings: dict[Any, Function] = {}

    @property
    def recorded_shapes(self) -> int:
        """The number of shapes for which the function is replayed."""
        return sum(recording is not self._function for recording in self._recordings.values())

    def __call__(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        shape = tuple((tensor.shape, tensor.stride(), tensor.dtype) for tensor in tensors)
        recording = self._recordings.get(shape)
        if recording is not None:
            return recording(*tensors)
        if self._calls[shape] == self._record_after and len(self._recordings) < _MAX_SHAPES:
            self._recordings[shape] = _record(self._function, tensors)
        self._calls[shape] += 1
        return self._function(*tensors)


def _record(function: Function, tensors: tuple[Tensor, ...]) -> Function:
    """Return the recording; the function itself if it cannot be recorded, or not with the same bits."""
    try:
        recording = make_fx(lambda *tensors: function(*tensors))(*tensors)
        pairs = list(zip(recording(*tensors), function(*tensors), strict=True))
    except Exception:  # the model may do anything, also what make_fx does not support
        return function
    same = all(torch.allclose(replayed, called, rtol=0, atol=0, equal_nan=True) for replayed, called in pairs)
    return recording if same else function
