"""The claims of the FedCM paper that go beyond single cells, compared with runs (`verdicts` has the rules).

Unfinished runs do not count; a diverged run is worse than every other. The claims are about accuracy. If runs have only
a test loss, claims about which algorithm is better are judged by the loss, and claims in points are left out.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from fedcm.reports.claims.alpha_sweeps import (
    has_value_near_optimum,
    list_alpha_sweeps,
    observe_inner_optimum,
    observe_lead_over_alpha_one,
)
from fedcm.reports.claims.contrast import compare, format_difference
from fedcm.reports.claims.drops import is_iid_to_dirichlet, is_setting_one_to_two, observe_drops
from fedcm.reports.claims.oscillation import MIN_EVALUATIONS, observe_oscillation
from fedcm.reports.claims.paper import UNCORRECTED
from fedcm.reports.claims.representatives import FEDCM, list_other_algorithms, list_representatives, list_rivals
from fedcm.reports.claims.verdicts import Claim, Observation, judge_claim, observe
from fedcm.reports.digest import Digest
from fedcm.reports.entry import Entry
from fedcm.reports.groups import Group, ResultCell, ResultRow, get_algorithm_title
from fedcm.reports.metric import ACCURACY
from fedcm.system.formatting import format_count


class RowComparison(NamedTuple):
    """A row of FedCM in a cell, and the rows that it is compared with."""

    group: Group
    cell: ResultCell
    own: ResultRow
    rivals: tuple[ResultRow, ...]

    @property
    def where(self) -> str:
        """The table and the cell in words."""
        return f"{self.group.title}, {self.cell.name}" if self.group.title else self.cell.name

    def get_entry(self, row: ResultRow) -> Entry:
        """Return a row's entry in the cell."""
        return row.entries[self.cell.name]


def judge_paper_claims(groups: Sequence[Group], digests: Sequence[Digest]) -> list[Claim]:
    """Return the verdict on each claim.

    Args:
        groups: The tables.
        digests: All runs, for the sweeps over α, which may span tables.
    """
    if len(groups) == 1:  # the table's title would be the same in every line of evidence
        groups = [replace(groups[0], title="")]
    comparisons = [comparison for comparison in list_row_comparisons(groups) if comparison.rivals]
    sweeps = list_alpha_sweeps(digests)
    with_accuracy = [group for group in groups if group.metric == ACCURACY]
    return [
        _judge_in_published_cells(
            f"FedCM {_describe_best(groups)} in every cell",
            "needs finished runs of FedCM and another algorithm in one cell",
            [(comparison, observe_lead(comparison)) for comparison in comparisons],
        ),
        *(_judge_claims_in_points(with_accuracy) if with_accuracy or not groups else ()),
        judge_claim(
            "α has an inner optimum near 0.1",
            [
                observe_inner_optimum(sweep)
                for sweep in sweeps
                if len(sweep.entries) > 2 and has_value_near_optimum(sweep)
            ],
            "needs FedCM runs that differ only in algorithm.alpha, with three values or more, one of them near 0.1",
        ),
        judge_claim(
            "Every α < 1 beats α = 1",
            [observe_lead_over_alpha_one(sweep) for sweep in sweeps if 1.0 in sweep.entries],
            "needs FedCM runs that differ only in algorithm.alpha, with 1 and a smaller value",
        ),
    ]


def _judge_claims_in_points(groups: Sequence[Group]) -> list[Claim]:
    """Judge the claims that have no meaning for a loss, whose size depends on the data."""
    names = [get_algorithm_title(name) for name in UNCORRECTED]
    oscillations = [
        (comparison, observation)
        for comparison in list_row_comparisons(groups, ["fedadam"])
        if (observation := _observe_oscillation(comparison))
    ]
    return [
        judge_claim(
            "FedCM loses least, in points, when participation falls from setting I to setting II",
            [one for group in groups for one in observe_drops(group, is_setting_one_to_two)],
            "needs FedCM and another algorithm in settings I (100 clients, 10 %) and II (500, 2 %), with equal rounds",
        ),
        judge_claim(
            f"FedCM loses less, in points, from IID to Dirichlet than {' and '.join(names)}, which do not correct "
            "client updates",
            [one for group in groups for one in observe_drops(group, is_iid_to_dirichlet, UNCORRECTED)],
            f"needs FedCM and {' or '.join(names)} on an IID and a Dirichlet split, with equal clients and rounds",
        ),
        _judge_in_published_cells(
            "FedAdam's curve oscillates more than FedCM's",
            f"needs both in one cell, with {2 * MIN_EVALUATIONS - 1} evaluations or more",
            oscillations,
        ),
    ]


def _describe_best(groups: Sequence[Group]) -> str:
    metrics = sorted({group.metric for group in groups}, key=lambda metric: (not metric.is_share, metric.name))
    descriptions = [metric.describe_best() for metric in metrics] or [ACCURACY.describe_best()]
    return descriptions[0] if len(descriptions) == 1 else f"{', or '.join(descriptions)},"


def list_row_comparisons(groups: Sequence[Group], algorithms: Sequence[str] | None = None) -> list[RowComparison]:
    """Return the rows that represent FedCM, each with its rivals.

    Args:
        groups: The tables.
        algorithms: The algorithms whose rows are rivals; all by default.
    """
    comparisons = []
    for group in groups:
        for cell in group.cells:
            others = list_other_algorithms(group, cell.name)
            names = [name for name in others if algorithms is None or name in algorithms]
            for own in list_representatives(group, cell.name, FEDCM):
                rivals = tuple(row for name in names for row in list_rivals(group, cell.name, name, own))
                comparisons.append(RowComparison(group, cell, own, rivals))
    return comparisons


def observe_lead(comparison: RowComparison) -> Observation:
    """Compare FedCM with every rival; the text has the best rival, and those that FedCM does not surely beat."""
    metric, own = comparison.group.metric, comparison.get_entry(comparison.own)
    contrasts = {
        row.label: compare(
            [(1, own.list_gains()), (-1, comparison.get_entry(row).list_gains())], relative=not metric.is_share
        )
        for row in comparison.rivals
    }
    ordered = sorted(comparison.rivals, key=lambda row: _rank(comparison.get_entry(row)), reverse=True)
    parts = [f"{comparison.own.label} {own.format()}"]
    for k, row in enumerate(ordered):
        contrast = contrasts[row.label]
        has_seeds = contrast.error is not None or not contrast.has_few_seeds  # a lead of one seed is never sure
        if k == 0 or not contrast.is_above or (has_seeds and not contrast.is_significantly_above()):
            parts.append(f"{'best other ' if k == 0 else ''}{row.label} {comparison.get_entry(row).format()}")
            if difference := format_difference(contrast, metric):
                parts.append(difference)
    return observe(f"{comparison.where}: {', '.join(parts)}", list(contrasts.values()))


def _rank(entry: Entry) -> tuple[bool, float]:
    """Return a sort key that puts diverged entries below all others."""
    mean = entry.mean()
    return (mean is not None, 0.0 if mean is None else entry.metric.to_gain(mean))


def _observe_oscillation(comparison: RowComparison) -> Observation | None:
    rows = (comparison.own, *comparison.rivals)
    return observe_oscillation(comparison.where, *((row.label, comparison.get_entry(row)) for row in rows))


def _judge_in_published_cells(
    text: str, needs: str, observations: Sequence[tuple[RowComparison, Observation]]
) -> Claim:
    """Judge a claim only in cells with a published figure of FedCM, if there are such cells."""
    published = [
        observation
        for comparison, observation in observations
        if comparison.get_entry(comparison.own).published is not None
    ]
    claim = judge_claim(text, published or [observation for _, observation in observations], needs)
    others = len(observations) - len(published)
    if not (published and others):
        return claim
    note = f"– not counted: {format_count(others, 'cell')} without a published figure of FedCM"
    return replace(claim, evidence=(*claim.evidence, note))
