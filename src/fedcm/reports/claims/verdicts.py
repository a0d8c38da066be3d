"""How a claim is judged from the differences that it is about.

seen          every difference is in its favour, and each 95 % interval, over three seeds or more, excludes 0
suggestive    every difference is in its favour, but an interval includes 0, or there are fewer than three seeds
not seen      some difference is not in its favour; a tie is not
contradicted  some difference is against it, and its interval excludes 0 too, widened for the number of comparisons
not tested    the runs that it needs are not there

A claim that all of several differences are in its favour needs no wider intervals to be seen: one that is not would
have to pass by itself. That any of them is against it does, since one of many may be by chance.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, final

from fedcm.reports.claims.contrast import Contrast

Verdict = Literal["seen", "suggestive", "not seen", "contradicted", "not tested"]
MARKS: dict[Verdict, str] = {
    "seen": "✓",
    "suggestive": "(✓)",
    "not seen": "✗",
    "contradicted": "✗✗",
    "not tested": "–",
}
_WEAKEST_FIRST: tuple[Verdict, ...] = ("contradicted", "not seen", "suggestive", "seen")


@final
@dataclass(frozen=True)
class Claim:
    text: str
    verdict: Verdict
    evidence: tuple[str, ...]  # a line for each place where it was looked for


@final
@dataclass(frozen=True)
class Finding:
    """One place where a claim was looked for."""

    said: str
    needed: tuple[Contrast, ...]  # it holds where all of these are above 0
    refuting: tuple[tuple[Contrast, ...], ...]  # it is contradicted where all of one of these groups are below 0
    chosen_from: int = 1  # how many the better side of `needed` was chosen from by the same figures

    def judge(self, comparisons: int) -> Verdict:
        """`comparisons`: how many groups could refute the whole claim."""
        if any(all(c.is_surely_below(comparisons) for c in group) for group in self.refuting):
            return "contradicted"
        if not self.needed or not all(c.is_above for c in self.needed):
            return "not seen"
        return "seen" if all(c.is_surely_above(self.chosen_from) for c in self.needed) else "suggestive"


def find(said: str, needed: Sequence[Contrast]) -> Finding:
    """Of a claim that each of these differences is above 0: any of them can refute it."""
    return Finding(said, tuple(needed), tuple((c,) for c in needed))


def judge_claim(text: str, findings: Sequence[Finding], needs: str) -> Claim:
    """The weakest verdict of all places; `needs` says what it would take where there is none."""
    if not findings:
        return Claim(text, "not tested", (needs,))
    comparisons = sum(len(finding.refuting) for finding in findings)
    verdicts: list[Verdict] = [finding.judge(comparisons) for finding in findings]
    evidence = [f"{MARKS[verdict]} {finding.said}" for finding, verdict in zip(findings, verdicts, strict=True)]
    weakest: Verdict = min(verdicts, key=_WEAKEST_FIRST.index)
    return Claim(text, weakest, tuple(evidence))
