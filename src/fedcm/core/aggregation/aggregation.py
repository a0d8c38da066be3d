"""How the reports of a cohort are averaged: the setting, which makes a new sum for every round."""

from dataclasses import dataclass
from typing import Any, Protocol, final

import numpy as np

from fedcm.core.aggregation.report_sum import PlainSum, ReportSum
from fedcm.core.algorithm import Round
from fedcm.core.exact_mean import ExactMean


class Aggregation(Protocol):
    """Averages the reports of every round."""

    def start_round(self, template: Any, sent: Any, cohort: np.ndarray, round: Round) -> ReportSum:
        """Return an empty sum for the reports of one round.

        Args:
            template: A report of the algorithm, for its fields, their sizes and dtypes.
            sent: The broadcast of the round.
            cohort: The clients of the round, on all workers together.
            round: The round.
        """
        ...


@final
@dataclass(frozen=True)
class PlainMean:
    """The weighted mean of the reports, without any change to them."""

    def start_round(self, template: Any, sent: Any, cohort: np.ndarray, round: Round) -> ReportSum:
        """Return an empty sum for the reports of one round; see `Aggregation`."""
        return PlainSum(ExactMean(template, len(cohort)))


PLAIN_MEAN = PlainMean()
