"""fedcm's warnings: one sentence about something that the user should know, although training continues.

In Python they are ordinary warnings, each kind with its own class. The command line prints each in one line on stderr.
"""

import contextlib
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

_PACKAGE = str(Path(__file__).parents[1])


class FedcmWarning(UserWarning):
    """The base class of all warnings of fedcm."""


class RandomDataWarning(FedcmWarning):
    """A dataset returns different values each time it is read, but fedcm reads it only once."""


class EvalModeWarning(FedcmWarning):
    """A model is trained in eval mode, so its dropout is off."""


class FewExamplesWarning(FedcmWarning):
    """Some clients have too few examples for test data of their own."""


class LongWarmupWarning(FedcmWarning):
    """The warm-up of a schedule covers the whole run, so the learning rate never reaches its full value."""


class SlowPrecisionWarning(FedcmWarning):
    """The CPU has no instructions for bfloat16, so training in bf16 is slower than in float32."""


class ManyWorkersWarning(FedcmWarning):
    """There are more workers than clients in a round, and fewer are started."""


def warn_user(message: str, category: type[FedcmWarning]) -> None:
    """Issue a warning that points to the line of the user's code which called fedcm."""
    frame: FrameType | None = sys._getframe()
    level = 0
    while frame is not None and frame.f_code.co_filename.startswith((_PACKAGE, contextlib.__file__)):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level + 1)


@contextmanager
def print_short_warnings() -> Iterator[None]:
    """Inside the block, print fedcm's warnings on stderr in one line each; other warnings are shown as usual."""
    with warnings.catch_warnings():
        show_other = warnings.showwarning

        def show(message, category, filename, lineno, file=None, line=None) -> None:
            if issubclass(category, FedcmWarning):
                print(f"fedcm: warning: {' '.join(str(message).split())}", file=sys.stderr)
            else:
                show_other(message, category, filename, lineno, file, line)

        warnings.showwarning = show
        yield


def silence_warnings() -> None:
    """Ignore fedcm's warnings in this process; workers call it, because rank 0 has shown them already."""
    warnings.simplefilter("ignore", FedcmWarning)
