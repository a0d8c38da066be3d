"""Being asked to stop: the first time at the next client, with everything saved; the second time at once."""

import os
import signal
from collections.abc import Callable
from types import FrameType
from typing import final


@final
class StopSignals:
    """Ctrl-C and SIGTERM inside the block; `with StopSignals() as stopping:` gives a function that tells."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet

    def __enter__(self) -> Callable[[], bool]:
        self.asked = False
        self.before = {number: signal.signal(number, self._handle) for number in (signal.SIGINT, signal.SIGTERM)}
        return lambda: self.asked

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            os._exit(128 + number)
        self.asked = True
        if not self.quiet:
            os.write(2, b"\nstopping at the next client; once more to stop at once\n")  # print may be busy already

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
