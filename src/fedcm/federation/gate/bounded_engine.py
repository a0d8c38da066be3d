"""Bounds on what the engine does with a message beside the filter of `traffic.py`, in every process of the server."""

import logging
from typing import Any

from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.stats_pool import CounterPool, HistPool
from nvflare.fuel.f3.streaming.byte_streamer import TxTask

from fedcm.federation.trust.foreign_text import clean_text

_MAX_LINE = 10_000  # characters of a log line


class OneLineRecord(logging.LogRecord):
    """A log record whose message is one line, because the engine logs texts of senders unchanged."""

    def getMessage(self) -> str:  # noqa: N802
        """Return the message; called by `logging`."""
        return clean_text(super().getMessage(), _MAX_LINE)


def bound_engine() -> None:
    """Change the engine in this process.

    - Only the receiver of a stream can acknowledge it or end it. The engine would accept that from everybody.
    - There are no statistics of messages. The engine would keep every channel and topic that a sender invents.
    - A log message is one line.
    """
    handle: Any = TxTask.handle_ack

    def handle_own_ack(self: Any, message: Any) -> None:
        if message.get_header(MessageHeaderKey.ORIGIN) == self.target:
            handle(self, message)

    TxTask.handle_ack = handle_own_ack
    HistPool.record_value = _record_nothing
    CounterPool.increment = _record_nothing
    logging.setLogRecordFactory(OneLineRecord)


def _record_nothing(*_: Any, **__: Any) -> None:
    pass
