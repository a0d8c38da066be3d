"""What is said of runs that diverged: the round, in place of every accuracy, since the model that had it is gone."""

from collections.abc import Sequence


def diverged_in(outcome: str, rounds: int) -> int | None:
    """The round in which a run diverged after so many that were whole; None of one that did not."""
    return rounds if outcome == "diverged" else None


def divergence(rounds: Sequence[int | None]) -> str:
    """Of one run or a seed each; nothing where none diverged.

    >>> divergence([175]), divergence([175, 148]), divergence([175, None, None]), divergence([None])
    ('diverged (round 175)', 'diverged (rounds 175, 148)', 'diverged (round 175; 1 of 3 seeds)', '')
    """
    known = [str(round) for round in rounds if round is not None]
    if not known:
        return ""
    share = f"; {len(known)} of {len(rounds)} seeds" if len(known) < len(rounds) else ""
    return f"diverged (round{'s' if len(known) > 1 else ''} {', '.join(known)}{share})"
