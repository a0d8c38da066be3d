"""All that a report says, before it becomes a page, pictures and tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import final

from fedcm.reports.claims.claims import claims
from fedcm.reports.claims.verdicts import Claim
from fedcm.reports.digest import Digest
from fedcm.reports.figures.looks import Look, looks
from fedcm.reports.groups import Group, grouped


@final
@dataclass(frozen=True)
class Story:
    digests: tuple[Digest, ...]
    groups: tuple[Group, ...]
    claims: tuple[Claim, ...]
    looks: dict[str, Look]  # by a row's label
    left_out: tuple[str, ...]  # what could not be read, a sentence each
    made: datetime

    @property
    def evaluated(self) -> bool:
        return any(run.accuracy or run.test_losses for run in self.digests)

    @property
    def going_on(self) -> int:
        return sum(run.state == "running" for run in self.digests)


def told(digests: Sequence[Digest], left_out: Sequence[str], made: datetime) -> Story:
    runs = tuple(sorted(digests, key=lambda run: (run.started, run.name)))
    groups = tuple(grouped(runs))
    rows = [(row.label, row.algorithm, len(row.entries)) for group in groups for row in group.rows]
    return Story(runs, groups, tuple(claims(groups, runs)), looks(rows), tuple(left_out), made)
