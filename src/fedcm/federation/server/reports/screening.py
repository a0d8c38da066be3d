"""Compare the reports of a round: which do not count, which are shortened, and how far each moves the mean.

A report does not count if it points against the others: its cosine with the median of the reports, coordinate by
coordinate, is below `federation.min_cosine`.

A report that counts is shortened if it is too far away: its distance from the server's guess
(`Algorithm.expected_report`, or 0) is above `federation.norm_ratio` times the median distance. It then counts at the
median distance, in its own direction from the guess. An honest report of FedCM is close to Δ, so a flipped one is far
away although its length is ordinary. Cosines are compared first, because a shortened report is close to the guess and
points where the guess points.

It is shortened rather than left out because an honest report can be far away too: while a site is disconnected, the
others come to agree, and its gradient grows. Left out, it would stay far away in every later round.

Of an even number of distances, the median is the lower of the two in the middle: it takes more than half of the sites
to raise it, and half of them to lower it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

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
    """How much one site's report moves the mean of a round if it counts."""

    share: float  # distance of the mean from the mean without this site, over the sum of these distances
    cosine: float  # of its report, as it arrived, with the median of the reports, coordinate by coordinate

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


@final
@dataclass(frozen=True)
class ScreeningRules:
    """When a report is shortened or does not count beside the others of its round."""

    norm_ratio: float = 0.0  # largest distance from the guess in units of the median distance; 0: no bound
    min_cosine: float = -1.0  # smallest cosine with the median of the reports; -1: no bound

    @property
    def is_on(self) -> bool:
        """Whether there is any rule."""
        return self.norm_ratio > 0 or self.min_cosine > -1


class ShortReport(NamedTuple):
    """A report that was too far away, at the distance at which it counts."""

    report: Any
    reason: str


def shorten_large_reports(reports: Mapping[int, Any], ratio: float, guess: Any = None) -> dict[int, ShortReport]:
    """Move the reports that are too far away beside the others to the median distance.

    Args:
        reports: The reports by client.
        ratio: The largest distance from the guess, in units of the median distance; 0 for no bound.
        guess: The server's guess of every report; None for 0.

    Returns:
        The shortened reports by client, with the reasons; without those that stay as they are.
    """
    if not ratio or len(reports) < LEAST_REPORTS:
        return {}
    clients = sorted(reports)
    centre = None if guess is None else [field.reshape(-1).double() for field in guess]
    distances = {client: float(_make_rows([reports[client]]).compute_distances(centre)[0]) for client in clients}
    median = sorted(distances.values())[(len(distances) - 1) // 2]
    what = "the norm of its report is" if guess is None else "the distance of its report from the expected one is"
    return {
        client: ShortReport(
            _scale_from(guess, reports[client], median / distance),
            f"{what} {distance:.4g}, above federation.norm_ratio = {ratio:g} times the median {median:.4g} of the "
            f"round's {len(distances)} reports; it counts at the median",
        )
        for client, distance in distances.items()
        if distance > ratio * median
    }


def _scale_from(guess: Any, report: Any, factor: float) -> Any:
    """Return guess + factor · (report − guess), computed in float64; the guess is 0 if it is None."""
    centre = [0.0] * len(report) if guess is None else [field.double() for field in guess]
    fields = zip(report, centre, strict=True)
    return type(report)(*((at + factor * (own.double() - at)).to(own.dtype) for own, at in fields))


def measure_cosines(reports: Mapping[int, Any]) -> dict[int, float]:
    """Return each client's cosine between its report and the median report; empty with fewer than three reports."""
    if len(reports) < LEAST_REPORTS:
        return {}
    clients = sorted(reports)
    rows = _make_rows([reports[client] for client in clients])
    median, products = compute_median(rows), np.zeros(len(clients))
    for block in rows.iterate_blocks():
        products += (block.values * median[block.field][block.columns]).sum(1).numpy()
    lengths = rows.compute_distances() * np.sqrt(sum(float(field.square().sum()) for field in median))
    cosines = np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0)
    return dict(zip(clients, cosines.tolist(), strict=True))


def find_opposed_reports(cosines: Mapping[int, float], min_cosine: float) -> dict[int, str]:
    """Return the clients whose reports point against the others', with the reasons.

    Args:
        cosines: By client, the cosine between its report and the median report.
        min_cosine: The smallest cosine; -1 for no bound.
    """
    return {
        client: f"its report points against those of the other sites: its cosine with their median is "
        f"{cosine:.2f}, below federation.min_cosine = {min_cosine:g}"
        for client, cosine in cosines.items()
        if min_cosine > -1 and cosine < min_cosine
    }


def measure_influence(
    reports: Mapping[int, Any], weights: Mapping[int, float], cosines: Mapping[int, float]
) -> dict[int, Influence]:
    """Return the influence of each client on the mean of these reports; empty with fewer than three reports.

    Args:
        reports: The reports by client, shortened if they count so.
        weights: Their weights in the mean.
        cosines: What `measure_cosines` returned for the reports as they arrived.
    """
    if len(reports) < LEAST_REPORTS:
        return {}
    clients = sorted(reports)
    rows = _make_rows([reports[client] for client in clients])
    own = np.array([weights[client] for client in clients])
    own = own / own.sum()
    moved = own / (1 - own) * rows.compute_distances(rows.mix(own))  # ‖mean − mean without i‖
    total = float(moved.sum())
    return {
        client: Influence(float(moved[row]) / total if total else 0.0, cosines[client])
        for row, client in enumerate(clients)
    }


def _make_rows(reports: Sequence[Any]) -> ReportRows:
    fields = zip(*reports, strict=True)
    return ReportRows([torch.stack([field.reshape(-1) for field in column]) for column in fields])
