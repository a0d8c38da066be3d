"""Robust means: some hostile reports cannot move them far.

rule          what every robust mean has in common, and the memory that it needs
rows          the reports of a round, read in blocks; buckets of reports
coordinates   median and trimmed mean of every coordinate
clipping      clipped mean, and clipping around a centre
weiszfeld     geometric median
selection     Krum and Bulyan
robust_mean   the aggregation that applies a rule in every round
"""

from fedcm.core.aggregation.aggregation import PlainMean
from fedcm.core.aggregation.robust.clipping import CentredClipping, Clipped
from fedcm.core.aggregation.robust.coordinates import Median, Trimmed
from fedcm.core.aggregation.robust.robust_mean import make_aggregation
from fedcm.core.aggregation.robust.rule import RobustRule
from fedcm.core.aggregation.robust.selection import Bulyan, Krum
from fedcm.core.aggregation.robust.weiszfeld import GeometricMedian

MEANS: dict[str, type] = {
    "plain": PlainMean,
    "clipped": Clipped,
    "centred-clipping": CentredClipping,
    "median": Median,
    "trimmed": Trimmed,
    "geometric-median": GeometricMedian,
    "krum": Krum,
    "bulyan": Bulyan,
}

__all__ = [
    "MEANS",
    "Bulyan",
    "CentredClipping",
    "Clipped",
    "GeometricMedian",
    "Krum",
    "Median",
    "RobustRule",
    "Trimmed",
    "make_aggregation",
]
