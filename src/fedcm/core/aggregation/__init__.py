"""From the reports of a cohort to the mean that the server's update gets."""

from fedcm.core.aggregation.aggregation import PLAIN_MEAN, Aggregation, PlainMean
from fedcm.core.aggregation.private import PrivateMean
from fedcm.core.aggregation.report_sum import PlainSum, ReportSum
from fedcm.core.aggregation.report_table import ReportTable

__all__ = ["PLAIN_MEAN", "Aggregation", "PlainMean", "PlainSum", "PrivateMean", "ReportSum", "ReportTable"]
