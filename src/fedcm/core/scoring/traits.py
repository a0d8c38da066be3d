"""What is known about a metric besides its values: in which direction it is better, and its range."""

from typing import NamedTuple


class MetricTraits(NamedTuple):
    """The direction and the range of a metric."""

    higher_is_better: bool
    is_share: bool  # lies between 0 and 1, and higher is better; shown in percent


SHARE = MetricTraits(higher_is_better=True, is_share=True)
ERROR = MetricTraits(higher_is_better=False, is_share=False)
