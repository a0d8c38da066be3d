"""Stop cleanly: the first signal stops at the next client and saves everything; the second one stops at once."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import FrameType
from typing import final

from fedcm.system.callbacks import StopRequested

_STOP = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@final
class StopSignals:
    """Handle Ctrl-C, SIGTERM and SIGHUP inside a block.

    The block receives a function that returns whether a signal has come:

        with StopSignals() as stop_requested:
            while not stop_requested():
                ...

    Outside the main thread, where Python cannot handle signals, the function always returns False. In a fork of the
    process, the first signal is silent and the second one ends the fork.

    Args:
        quiet: Print nothing when a signal comes.
        interactive: For notebooks and scripts: handle only Ctrl-C, and let a second one raise KeyboardInterrupt
            instead of ending the process.
    """

    def __init__(self, *, quiet: bool = False, interactive: bool = False) -> None:
        self.quiet = quiet
        self.interactive = interactive

    def __enter__(self) -> StopRequested:
        self.requested = False
        self.process = os.getpid()
        self.previous = {}
        if threading.current_thread() is threading.main_thread():
            numbers = (signal.SIGINT,) if self.interactive else _STOP
            self.previous = {
                number: signal.signal(number, self._handle) for number in numbers if not _is_ignored_by_nohup(number)
            }
        return lambda: self.requested

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested and number == signal.SIGHUP:
            return  # a closing terminal sends it twice, once by the shell
        forked = os.getpid() != self.process
        if self.requested and self.interactive and not forked:
            raise KeyboardInterrupt
        if self.requested:
            os._exit(128 + number)
        self.requested = True
        if not self.quiet and not forked:
            with contextlib.suppress(OSError):  # the terminal may be gone
                # os.write, because the signal may have interrupted a print
                os.write(2, b"\nstopping at the next client; repeat to stop at once\n")

    def __exit__(self, *_: object) -> None:
        for number, handler in self.previous.items():
            signal.signal(number, handler)


def handle_ctrl_c(stop_requested: Callable[[], bool] | None) -> AbstractContextManager[Callable[[], bool]]:
    """Return a context manager that yields the function by which a function of the API sees a stop request.

    Args:
        stop_requested: The caller's own function. If it is None, Ctrl-C requests the stop as long as the block lasts.
    """
    return StopSignals(interactive=True) if stop_requested is None else nullcontext(stop_requested)


def ignore_ctrl_c_in_fork() -> None:
    """In a fork: ignore Ctrl-C, which the parent handles, unless the fork inherited `StopSignals`."""
    handler = signal.getsignal(signal.SIGINT)
    if not isinstance(getattr(handler, "__self__", None), StopSignals):
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _is_ignored_by_nohup(number: signal.Signals) -> bool:
    """Return whether the command was started with nohup, so that it must outlive the terminal."""
    return number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN
