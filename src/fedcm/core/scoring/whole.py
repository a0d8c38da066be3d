"""Metrics that need the outputs and labels of a whole set at once: one row of outputs per example in memory."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from torch import Tensor

from fedcm.core.scoring.traits import MetricTraits
from fedcm.errors import UserError

MetricFunction = Callable[[Any, Any], Any]  # (outputs, labels) of a whole set, on the CPU -> a number


@final
@dataclass(frozen=True)
class WholeMetric:
    """A function of all outputs and labels of a set.

    Attributes:
        name: Its name in metrics.jsonl, after the name of the set.
        traits: Its direction and range.
        function: Called with all outputs and all labels; returns one number.
    """

    name: str
    traits: MetricTraits
    function: MetricFunction

    def compute(self, outputs: Any, labels: Any) -> float | None:
        """Return the value; None if it is not a finite number.

        Raises:
            UserError: If the function returns something else than one number.
        """
        value = self.function(outputs, labels)
        if isinstance(value, Tensor | np.ndarray | np.generic):
            if np.prod(value.shape) != 1:
                raise UserError(f"it must give one number, got shape {tuple(value.shape)}")
            value = value.item()
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UserError(f"it must give one number, got {type(value).__name__}")
        return float(value) if math.isfinite(value) else None
