"""Being asked to stop: the first time at the next client, with everything saved; the second time at once."""

import contextlib
import os
import signal
from collections.abc import Callable
from types import FrameType
from typing import final

_STOP = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@final
class StopSignals:
    """Ctrl-C, SIGTERM and the end of the terminal inside the block; `with StopSignals() as stopping:` gives a function
    that tells."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet

    def __enter__(self) -> Callable[[], bool]:
        self.asked = False
        self.before = {number: signal.signal(number, self._handle) for number in _STOP if not _by_nohup(number)}
        return lambda: self.asked

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked and number == signal.SIGHUP:
            return  # a closing terminal says it twice, by its shell and by itself
        if self.asked:
            os._exit(128 + number)
        self.asked = True
        if not self.quiet:
            with contextlib.suppress(OSError):  # the terminal may be gone
                os.write(2, b"\nstopping at the next client; once more to stop at once\n")  # print may be busy already

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)


def _by_nohup(number: signal.Signals) -> bool:
    """Who starts a command with nohup wants it to outlive the terminal."""
    return number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN
