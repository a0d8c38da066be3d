"""Warnings: one sentence about something that a user should know, although training continues.

In Python they are ordinary warnings, each of a class of its own; the command line prints them on stderr, a line each.
"""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

_PACKAGE = str(Path(__file__).parents[1])


class FedcmWarning(UserWarning):
    """The parent of all warnings of fedcm."""


class RandomDataWarning(FedcmWarning):
    """A dataset gives other values each time it is read, and was read once."""


class EvalModeWarning(FedcmWarning):
    """A model is trained in eval mode, with its dropout off."""


def warn(sentence: str, kind: type[FedcmWarning]) -> None:
    """Warns at the line of the user's own code that called fedcm."""
    frame: FrameType | None = sys._getframe()
    level = 0
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(sentence, kind, stacklevel=level + 1)


@contextmanager
def print_warnings_in_one_line() -> Iterator[None]:
    """Inside, fedcm's warnings are printed on stderr, each in one line; other warnings as ever."""
    with warnings.catch_warnings():
        otherwise = warnings.showwarning

        def show(message, category, filename, lineno, file=None, line=None) -> None:
            if issubclass(category, FedcmWarning):
                print(f"fedcm: warning: {' '.join(str(message).split())}", file=sys.stderr)
            else:
                otherwise(message, category, filename, lineno, file, line)

        warnings.showwarning = show
        yield


def silence_in_worker() -> None:
    """In a worker: the first one has said it."""
    warnings.simplefilter("ignore", FedcmWarning)
