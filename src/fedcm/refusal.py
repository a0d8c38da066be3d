"""The one exception for input that cannot work: a sentence that says what must hold, what was got and what to do.

The command line prints it and leaves with code 2; nothing else is ever shown for bad input.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class Refused(ValueError):  # noqa: N818 - it is an answer to the user rather than a fault of the program
    """Input that cannot work, told in one sentence."""


def nearest(word: str, known: Iterable[str]) -> str:
    """How to go on after an unknown word: the nearest known one, or all of them where none is near."""
    known = list(known)
    close = get_close_matches(word.lower(), known, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known) or 'none'}"
