"""Compare the reports of a round with each other: which do not count, and how much each site moves the mean.

A report does not count if its norm is above `federation.norm_ratio` times the median norm of the round's reports. Of an
even number of norms, the median is the lower of the two in the middle, so that it takes more than half of the sites to
raise it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch

from fedcm.core.aggregation.robust.coordinates import compute_median
from fedcm.core.aggregation.robust.rows import ReportRows

LEAST_REPORTS = 3  # with two reports that differ, nobody can tell which one is false
LARGE_SHARE = 0.5  # a site that moves the mean more than all others together
OPPOSED = -0.5  # cosine with the median of the reports


@final
@dataclass(frozen=True)
class Influence:
    """How much one site's report moved the mean of a round."""

    share: float  # distance of the mean from the mean without this site, over the sum of these distances
    cosine: float  # of its report with the median of the reports, coordinate by coordinate

    @property
    def alarm(self) -> str | None:
        """Why a person should look at this site; None if there is no reason."""
        if self.share > LARGE_SHARE:
            return f"it moves the mean more than all other sites together (influence {self.share:.2f})"
        if self.cosine < OPPOSED:
            return f"its report points against those of the other sites (cosine {self.cosine:.2f})"
        return None

    def to_dict(self) -> dict[str, float]:
        """Return the numbers for metrics.jsonl."""
        return {"share": round(self.share, 6), "cosine": round(self.cosine, 6)}


def find_large_reports(reports: Mapping[int, Any], ratio: float) -> dict[int, str]:
    """Return the clients whose reports are too large beside the others, with the reasons.

    Args:
        reports: The reports by client.
        ratio: The largest norm in units of the median norm; 0 for no bound.
    """
    if not ratio or len(reports) < LEAST_REPORTS:
        return {}
    clients = sorted(reports)
    norms = {client: float(_make_rows([reports[client]]).compute_distances()[0]) for client in clients}
    median = sorted(norms.values())[(len(norms) - 1) // 2]
    return {
        client: f"the norm of its report is {norm:.4g}, above federation.norm_ratio = {ratio:g} times the median "
        f"{median:.4g} of the round's {len(norms)} reports"
        for client, norm in norms.items()
        if norm > ratio * median
    }


def measure_influence(reports: Mapping[int, Any], weights: Mapping[int, float]) -> dict[int, Influence]:
    """Return the influence of each client on the mean of these reports; empty with fewer than three reports."""
    if len(reports) < LEAST_REPORTS:
        return {}
    clients = sorted(reports)
    rows = _make_rows([reports[client] for client in clients])
    own = np.array([weights[client] for client in clients])
    own = own / own.sum()
    moved = own / (1 - own) * rows.compute_distances(rows.mix(own))  # ‖mean − mean without i‖
    median, total = compute_median(rows), float(moved.sum())
    products = np.zeros(len(clients))
    for block in rows.iterate_blocks():
        products += (block.values * median[block.field][block.columns]).sum(1).numpy()
    lengths = rows.compute_distances() * np.sqrt(sum(float(field.square().sum()) for field in median))
    cosines = np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0)
    return {
        client: Influence(float(moved[row]) / total if total else 0.0, float(cosines[row]))
        for row, client in enumerate(clients)
    }


def _make_rows(reports: Sequence[Any]) -> ReportRows:
    fields = zip(*reports, strict=True)
    return ReportRows([torch.stack([field.reshape(-1) for field in column]) for column in fields])
