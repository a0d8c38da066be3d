"""The exceptions that fedcm raises on purpose.

`UserError` is for input that cannot work. The command line prints its message and exits with code 2. The other
exceptions end a run: it diverged, was stopped, or failed in a worker or on the disk.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path


class UserError(ValueError):
    """Input that cannot work. The message is one sentence: what is required, what was given, what to do."""


class Diverged(ArithmeticError):  # noqa: N818
    """A loss, a report or a parameter is no longer finite, or out of range; training cannot continue."""


class Stopped(Exception):  # noqa: N818
    """The user asked to stop. All rounds before this one are complete."""


class TrainingFailed(RuntimeError):  # noqa: N818
    """Your own code or a worker failed during training.

    Runs always raise it. `fedcm.train` and `fedcm.rounds` raise it only with several workers; with one worker, the
    exception of your own code is raised as it is.

    The first line of the message is one sentence. A traceback follows it if the user asked for tracebacks.

    Attributes:
        run: The folder of the run that failed, if it is known.
    """

    run: Path | None = None

    @property
    def sentence(self) -> str:
        """The message without the traceback."""
        return str(self).partition("\n")[0]

    @property
    def trace(self) -> str:
        """The traceback; empty if the user did not ask for it."""
        return str(self).partition("\n")[2]


class WriteFailed(OSError):  # noqa: N818
    """A file of the run could not be written, most often because the disk is full.

    Attributes:
        run: The folder of the run that failed, if it is known.
    """

    run: Path | None = None


def suggest(word: str, known: Iterable[str]) -> str:
    """Complete an error about an unknown word: suggest the closest known word, or list all of them.

    >>> suggest("fedmc", ["fedavg", "fedcm"])
    "did you mean 'fedcm'?"
    >>> suggest("x", ["fedavg", "fedcm"])
    'known: fedavg, fedcm'
    """
    known = list(known)
    close = get_close_matches(word.lower(), known, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known) or 'none'}"
