"""Trace the tensor operations of a function once with `make_fx`, and run the trace instead of the function.

`torch.func` analyses a function anew at every call. That takes about a millisecond of Python: more than a whole step of
a tiny model. The resulting operations depend on the shapes of the arguments alone. So after enough calls with the same
shapes, the function is traced, and from then on the trace runs. Tracing checks that the trace gives the same bits; a
function that cannot be traced is called as before.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, final

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

Function = Callable[..., tuple[Tensor, ...]]

_TRACE_AFTER = 100  # calls; the first trace takes a second or two, later ones a twentieth of that
_MAX_SHAPES = 16  # shapes that are traced


@final
class TracedFunction:
    """A function that is traced for each shape of its arguments, after `trace_after` calls with that shape.

    >>> double = TracedFunction(lambda x: (x + x,), trace_after=1)
    >>> double(torch.ones(2)), double(torch.ones(2))
    ((tensor([2., 2.]),), (tensor([2., 2.]),))
    >>> double.traced_shapes
    1
    """

    def __init__(self, function: Function, trace_after: int = _TRACE_AFTER) -> None:
        self._function = function
        self._trace_after = trace_after
        self._calls: Counter[Any] = Counter()
        self._traces: dict[Any, Function] = {}

    @property
    def traced_shapes(self) -> int:
        """The number of shapes for which a trace runs instead of the function."""
        return sum(trace is not self._function for trace in self._traces.values())

    def __call__(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        shape = tuple((tensor.shape, tensor.stride(), tensor.dtype) for tensor in tensors)
        trace = self._traces.get(shape)
        if trace is not None:
            return trace(*tensors)
        if self._calls[shape] == self._trace_after and len(self._traces) < _MAX_SHAPES:
            self._traces[shape] = _trace(self._function, tensors)
        self._calls[shape] += 1
        return self._function(*tensors)


def _trace(function: Function, tensors: tuple[Tensor, ...]) -> Function:
    """Return the trace; the function itself if it cannot be traced, or not with the same bits."""
    try:
        trace = make_fx(lambda *tensors: function(*tensors))(*tensors)
        pairs = list(zip(trace(*tensors), function(*tensors), strict=True))
    except Exception:  # the model may do anything, also what make_fx does not support
        return function
    same = all(torch.allclose(traced, called, rtol=0, atol=0, equal_nan=True) for traced, called in pairs)
    return trace if same else function
