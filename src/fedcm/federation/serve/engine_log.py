"""Choose the lines of the engine's log that an operator sees; the whole log is in the kit's `log.txt`.

Lines are shown in the engine's own words: our messages, errors, and when a site or a job comes or goes.
"""

import re
import time
from collections import deque
from collections.abc import Callable
from typing import final

from fedcm.federation.kit import Kit

# as the engine prints it: time - logger - level - [context] - message
_RECORD = re.compile(r"^\S+ \S+ - (?P<logger>\S+) - (?P<level>[A-Z]+) - (?:\[\w+=.*?\] (?:- )?)?(?P<message>.*)$")
_OWN_LOGGERS = ("FederatedTraining", "SiteExecutor", "Gatekeeper", "SiteLogin")
_JOB_ENDS = ("child process exit with return code", "child worker process finished")  # at the server, at a site
_SHOWN = (  # parts of the engine's messages at INFO
    "Server started",
    "Client: New client",
    "Re-activate the client",
    "Client Name:",  # … left
    "Started run:",
    "Launched job",
    *_JOB_ENDS,
    "Successfully registered client",
    "registration rejected",
)
_UNREACHABLE = ("re-challenge after", "cannot send to 'server'", "Failed to send heartbeat")
_HARMLESS = re.compile(r"no app command func for topic fedcm|cannot send to 'server\.[0-9a-f-]{36}'")  # a job starts
_REPEAT = 60.0  # seconds before the same error is shown again
_MAX_LENGTH = 300  # characters of a line


@final
class EngineLog:
    """Reads the engine's output line by line."""

    def __init__(self, kit: Kit, explain: Callable[[], str] = str) -> None:
        """Read the output of the engine that serves `kit`.

        Args:
            kit: The kit.
            explain: Called when a site does not reach its server; says why, if it knows.
        """
        self.kit = kit
        self.explain = explain
        self.last_lines = deque[str](maxlen=60)
        self._shown_at: dict[str, float] = {}

    def filter_line(self, line: str) -> str | None:
        """Return what to show of a line, or None."""
        self.last_lines.append(line)
        record = _RECORD.match(line)
        if record is None:
            return None
        message = record["message"].strip()
        if record["logger"] in _OWN_LOGGERS:
            return _shorten(message)
        if self.kit.kind == "site" and any(part in message for part in _UNREACHABLE):
            hint = f"trying again; see `fedcm federation check {self.kit.path}`"
            shown = self._show_once(f"no answer from the server at {self.kit.host}:{self.kit.port}; {hint}")
            reason = self.explain() if shown is not None else ""
            return f"{shown}; {reason}" if reason else shown
        if any(part in message for part in _SHOWN):
            return _shorten(message)
        if record["level"] not in ("ERROR", "CRITICAL") or _HARMLESS.search(message) or "Traceback" in message:
            return None
        return self._show_once(f"error: {message}")

    @property
    def last_error(self) -> str:
        """The last error or exception in the engine's output; empty if there is none."""
        for line in reversed(self.last_lines):
            record = _RECORD.match(line)
            if record is None and re.match(r"\w[\w.]*(Error|Exception)\b", line):
                return _shorten(line.strip())
            if record is not None and record["level"] in ("ERROR", "CRITICAL"):
                return _shorten(record["message"].strip())
        return ""

    def _show_once(self, message: str) -> str | None:
        now = time.monotonic()
        self._shown_at = {shown: when for shown, when in self._shown_at.items() if now - when < _REPEAT}
        if message in self._shown_at:
            return None
        self._shown_at[message] = now
        return _shorten(message)


def is_end_of_job(line: str) -> bool:
    """Return whether a line of the engine's log says that a job has ended."""
    return any(part in line for part in _JOB_ENDS)


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_LENGTH else f"{text[:_MAX_LENGTH]}…"
