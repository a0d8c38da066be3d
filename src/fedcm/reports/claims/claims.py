"""What the FedCM paper claims beyond single cells, held against the runs (`fedcm.reports.claims.verdicts` says how).

Unfinished runs do not count; a run that diverged has lost to every other. The claims are about accuracy. Where runs
have a test loss alone, claims that only ask which is better are held against it; those in points are left out.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from fedcm.reports.claims.contrast import contrast
from fedcm.reports.claims.drops import find_drops, is_iid_to_dirichlet, is_one_to_two
from fedcm.reports.claims.oscillation import EVALUATIONS, find_oscillation
from fedcm.reports.claims.paper import UNCORRECTED
from fedcm.reports.claims.standings import HERO, list_algorithms, list_rivals, list_speakers
from fedcm.reports.claims.sweeps import find_inner_optimum, find_lead_over_one, has_value_near, list_sweeps
from fedcm.reports.claims.verdicts import Claim, Finding, find, judge_claim
from fedcm.reports.digest import Digest
from fedcm.reports.entry import Entry
from fedcm.reports.groups import Cell, Group, Row, algorithm_title
from fedcm.reports.metric import ACCURACY, LOSS
from fedcm.reports.words import several, write_difference


class Place(NamedTuple):
    """A row of FedCM in a cell, and the rows that it is compared with there."""

    group: Group
    cell: Cell
    own: Row
    rivals: tuple[Row, ...]

    @property
    def where(self) -> str:
        return f"{self.group.title}, {self.cell.name}" if self.group.title else self.cell.name

    def entry(self, row: Row) -> Entry:
        return row.entries[self.cell.name]


def claims(groups: Sequence[Group], digests: Sequence[Digest]) -> list[Claim]:
    groups = groups if len(groups) > 1 else [replace(group, title="") for group in groups]  # nothing to tell apart
    places, sweeps = [place for place in list_places(groups) if place.rivals], list_sweeps(digests)
    in_points = [group for group in groups if group.metric is ACCURACY]
    return [
        _judge_papers_cells(
            f"FedCM {_name_best(groups)} in every cell",
            "needs FedCM and another algorithm in a cell, finished",
            [(place, find_lead(place)) for place in places],
        ),
        *(_claims_in_points(in_points) if in_points or not groups else ()),
        judge_claim(
            "α has an inner optimum near 0.1",
            [find_inner_optimum(sweep) for sweep in sweeps if len(sweep.entries) > 2 and has_value_near(sweep)],
            "needs FedCM runs with three values of algorithm.alpha or more, one of them near 0.1, otherwise the same",
        ),
        judge_claim(
            "Every α < 1 beats α = 1",
            [find_lead_over_one(sweep) for sweep in sweeps if 1.0 in sweep.entries],
            "needs FedCM runs with algorithm.alpha = 1 and less, otherwise the same",
        ),
    ]


def _claims_in_points(groups: Sequence[Group]) -> list[Claim]:
    """Those that make no sense of a loss, whose size depends on the data."""
    names = [algorithm_title(name) for name in UNCORRECTED]
    oscillating = [(place, _find_oscillation(place)) for place in list_places(groups, ["fedadam"])]
    return [
        judge_claim(
            "FedCM loses least, in points, when participation falls from setting I to setting II",
            [finding for group in groups for finding in find_drops(group, is_one_to_two)],
            "needs FedCM and another algorithm, equally long, in setting I (100 clients, 10 %) and II (500, 2 %)",
        ),
        judge_claim(
            f"FedCM loses less, in points, from IID to Dirichlet than {' and '.join(names)}, which correct no client",
            [finding for group in groups for finding in find_drops(group, is_iid_to_dirichlet, UNCORRECTED)],
            f"needs FedCM and {' or '.join(names)}, equally long, on an IID and a Dirichlet split over as many clients",
        ),
        _judge_papers_cells(
            "FedAdam's curve oscillates more than FedCM's",
            f"needs both in a cell, with {2 * EVALUATIONS - 1} evaluations or more",
            [(place, finding) for place, finding in oscillating if finding],
        ),
    ]


def _name_best(groups: Sequence[Group]) -> str:
    metrics = {group.metric for group in groups}
    if LOSS not in metrics:
        return "is the most accurate"
    return "has the lowest test loss" if len(metrics) == 1 else "is the most accurate, or has the lowest test loss,"


def list_places(groups: Sequence[Group], algorithms: Sequence[str] | None = None) -> list[Place]:
    """The rows of FedCM that speak for it, each with the rivals among the algorithms, or among all others."""
    places = []
    for group in groups:
        for cell in group.cells:
            names = [name for name in list_algorithms(group, cell.name) if algorithms is None or name in algorithms]
            for own in list_speakers(group, cell.name, HERO):
                rivals = tuple(row for name in names for row in list_rivals(group, cell.name, name, own))
                places.append(Place(group, cell, own, rivals))
    return places


def find_lead(place: Place) -> Finding:
    """FedCM against every rival; told are the best of these, and those that by their intervals it may be behind."""
    metric, own = place.group.metric, place.entry(place.own)
    against = {
        row.label: contrast([(1, own.gains()), (-1, place.entry(row).gains())], relative=metric is LOSS)
        for row in place.rivals
    }
    ordered = sorted(place.rivals, key=lambda row: _rank(place.entry(row)), reverse=True)
    words = [f"{place.own.label} {own.write()}"]
    for k, row in enumerate(ordered):
        found = against[row.label]
        if k == 0 or not found.is_above or (found.error is not None and not found.is_surely_above()):
            words.append(f"{'best other ' if k == 0 else ''}{row.label} {place.entry(row).write()}")
            words += _nonempty(write_difference(found, metric))
    return find(f"{place.where}: {', '.join(words)}", list(against.values()))


def _rank(entry: Entry) -> tuple[bool, float]:
    """What diverged is below everything."""
    mean = entry.mean()
    return (mean is not None, 0.0 if mean is None else entry.metric.gain(mean))


def _nonempty(text: str) -> list[str]:
    return [text] if text else []


def _find_oscillation(place: Place) -> Finding | None:
    return find_oscillation(place.where, *((row.label, place.entry(row)) for row in (place.own, *place.rivals)))


def _judge_papers_cells(text: str, needs: str, found: Sequence[tuple[Place, Finding]]) -> Claim:
    """The paper speaks of its own cells: where some have a published figure of FedCM, the others do not count."""
    of_paper = [finding for place, finding in found if place.entry(place.own).published is not None]
    claim = judge_claim(text, of_paper or [finding for _, finding in found], needs)
    others = len(found) - len(of_paper)
    if not (of_paper and others):
        return claim
    aside = f"– {several(others, 'cell')} without a published figure of FedCM aside"
    return replace(claim, evidence=(*claim.evidence, aside))
