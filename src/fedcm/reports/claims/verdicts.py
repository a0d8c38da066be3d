"""The verdict on a claim, from the differences that it is about.

seen          every difference supports it, and each 95 % interval, over three seeds or more, excludes 0
suggestive    every difference supports it, but an interval includes 0, or there are fewer than three seeds
not seen      at least one difference does not support it; a tie does not
contradicted  at least one difference is against it, and its interval, widened for the number of comparisons, excludes 0
not tested    the runs that it needs are missing

"Seen" needs no wider intervals, because every single difference must pass. "Contradicted" does, because one difference
of many may be negative by chance.
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
    """A claim of the paper with its verdict."""

    text: str
    verdict: Verdict
    evidence: tuple[str, ...]  # one line per observation


@final
@dataclass(frozen=True)
class Observation:
    """The differences that one claim is about, in one cell, pair of cells or sweep."""

    text: str
    required: tuple[Contrast, ...]  # the claim holds if all of these are above 0
    refuting: tuple[tuple[Contrast, ...], ...]  # the claim is contradicted if all of one of these groups are below 0
    candidates: int = 1  # how many entries the better side of `required` was selected from

    def judge(self, comparisons: int) -> Verdict:
        """Return the verdict; `comparisons` is the number of groups that could refute the whole claim."""
        if any(all(c.is_significantly_below(comparisons) for c in group) for group in self.refuting):
            return "contradicted"
        if not self.required or not all(c.is_above for c in self.required):
            return "not seen"
        return "seen" if all(c.is_significantly_above(self.candidates) for c in self.required) else "suggestive"


def observe(text: str, required: Sequence[Contrast]) -> Observation:
    """Return the observation for a claim that all these differences are above 0; each of them can refute it."""
    return Observation(text, tuple(required), tuple((c,) for c in required))


def judge_claim(text: str, observations: Sequence[Observation], needs: str) -> Claim:
    """Return a claim with the weakest verdict of its observations.

    Args:
        text: The claim.
        observations: What the runs show.
        needs: Which runs are missing; the evidence if there are no observations.
    """
    if not observations:
        return Claim(text, "not tested", (needs,))
    comparisons = sum(len(observation.refuting) for observation in observations)
    verdicts: list[Verdict] = [observation.judge(comparisons) for observation in observations]
    evidence = [f"{MARKS[verdict]} {one.text}" for one, verdict in zip(observations, verdicts, strict=True)]
    weakest: Verdict = min(verdicts, key=_WEAKEST_FIRST.index)
    return Claim(text, weakest, tuple(evidence))
