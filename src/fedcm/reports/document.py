"""The content of a report, before it becomes a page, figures and tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import final

from fedcm.reports.claims.paper import has_paper_figures
from fedcm.reports.claims.paper_claims import judge_paper_claims
from fedcm.reports.claims.verdicts import Claim
from fedcm.reports.digest import Digest
from fedcm.reports.figures.style import CurveStyle, choose_row_styles
from fedcm.reports.groups import Group, group_runs


@final
@dataclass(frozen=True)
class Document:
    """A report's content. `claims` is empty if the runs are not of the paper's grids."""

    digests: tuple[Digest, ...]
    groups: tuple[Group, ...]
    claims: tuple[Claim, ...]
    styles: dict[str, CurveStyle]  # by a row's label
    skipped: tuple[str, ...]  # one sentence per run that could not be read
    created: datetime

    @property
    def is_evaluated(self) -> bool:
        """Whether at least one run was evaluated."""
        return any(run.headline or run.test_losses for run in self.digests)

    @property
    def running(self) -> int:
        """The number of runs in progress."""
        return sum(run.state == "running" for run in self.digests)


def build_document(digests: Sequence[Digest], skipped: Sequence[str], created: datetime) -> Document:
    """Group runs into tables, and judge the paper's claims if the runs carry the paper's figures.

    Args:
        digests: The runs.
        skipped: One sentence per run that could not be read.
        created: The time that the page shows.
    """
    runs = tuple(sorted(digests, key=lambda run: (run.started, run.name)))
    groups = tuple(group_runs(runs))
    rows = [(row.label, row.algorithm, len(row.entries)) for group in groups for row in group.rows]
    claims = tuple(judge_paper_claims(groups, runs)) if has_paper_figures(runs) else ()
    return Document(runs, groups, claims, choose_row_styles(rows), tuple(skipped), created)
