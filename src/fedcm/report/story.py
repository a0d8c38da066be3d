"""All that a report says, before it becomes a page, pictures and tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import final

from fedcm.report.claims import Claim, claims
from fedcm.report.digest import Digest
from fedcm.report.groups import MAIN, Group, grouped
from fedcm.report.looks import Look, looks
from fedcm.report.rounding import hundredths


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
        return any(run.accuracy for run in self.digests)

    @property
    def going_on(self) -> int:
        return sum(run.state == "running" for run in self.digests)


def told(digests: Sequence[Digest], left_out: Sequence[str], made: datetime) -> Story:
    runs = tuple(sorted(digests, key=lambda run: (run.started, run.name)))
    groups = tuple(grouped(runs))
    rows = [(row.label, row.algorithm, len(row.entries)) for group in groups for row in group.rows]
    return Story(runs, groups, tuple(claims(groups, runs)), looks(rows), tuple(left_out), made)


def answer(group: Group) -> str:
    """The table in a sentence."""
    led: dict[str, int] = {}
    tested = 0
    for cell in group.cells:
        leaders = group.leaders(cell.name)
        tested += bool(leaders)
        for label in leaders:
            led[label] = led.get(label, 0) + 1
    if tested:
        return f"{_listed(led, tested)}."
    means = [
        f"{row.label} {hundredths(mean)} % in {cell}"
        for row in group.rows
        for cell, entry in row.entries.items()
        if (mean := entry.mean(MAIN)) is not None
    ]
    return f"Nothing to compare yet: {'; '.join(means[:3])}." if means else "Nothing has been evaluated yet."


def _listed(led: dict[str, int], tested: int) -> str:
    ordered = sorted(led.items(), key=lambda item: -item[1])
    if tested == 1:
        names = " and ".join(label for label, _ in ordered)
        return f"{names} {'is' if len(ordered) == 1 else 'are'} the most accurate"
    words = [f"{label} in {'all' if count == tested else count} of {tested} cells" for label, count in ordered]
    return f"Most accurate: {'; '.join(words).replace(f'all of {tested}', f'all {tested}')}"
