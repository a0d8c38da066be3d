"""The engine's log as an operator wants it: a line when something begins, ends or goes wrong, and none in between.

Everything is in the engine's own files in the kit; this is what the command shows of it.
"""

import re
import time
from collections import deque
from typing import Any, final

from fedcm.federation.kit import Kit

# as the engine prints it: time - logger - level - [what it is about] - message
_RECORD = re.compile(r"^\S+ \S+ - (?P<logger>\S+) - (?P<level>[A-Z]+) - (?:\[\w+=.*?\] (?:- )?)?(?P<message>.*)$")
_OURS = ("FederatedTraining", "SiteExecutor")
_JOB = r"(?P<job>[0-9a-f]{8})[0-9a-f-]{28}"

# what a message is told as; {…} are its parts and those of the kit
_TOLD = (
    (r"Server started$", "listens at port {port}, and at port {admin_port} to admins"),
    (r"Client: New client (?P<site>\S+)@\S+ joined\..*?(?P<count>\d+)$", "site {site} is connected, {count} in all"),
    (r"Re-activate the client: (?P<site>\S+)", "site {site} is connected again"),
    (r"Client Name:(?P<site>\S+) left\..*?(?P<count>\d+)$", "site {site} has left, {count} in all"),
    (r"Started run: " + _JOB + r" for clients: (?P<sites>.*)$", "job {job} starts with {sites}"),
    (r"Job: " + _JOB + r" child process exit with return code (?P<code>-?\d+)", "job {job} has ended{ending}"),
    (r"Launched job " + _JOB, "job {job} starts"),
    (r"run \(" + _JOB + r"\): child worker process finished with RC (?P<code>-?\d+)", "job {job} has ended{ending}"),
    (r"Successfully registered client:", "connected to the server at {host}:{port}"),
    (r"registration rejected: (?P<why>.*)$", "the server at {host}:{port} does not take this site: {why}"),
)
_TRANSLATED = [(re.compile(pattern), told) for pattern, told in _TOLD]
_UNREACHED = re.compile(r"re-challenge after|cannot send to 'server|Failed to send heartbeat")
_OPENED = re.compile(r"Connection \[(?P<connection>\S+) .* => .*\] is created: PID: (?P<process>\d+)")
_CLOSED = re.compile(r"Connection \[(?P<connection>\S+) .*\] is closed PID: (?P<process>\d+)")
_STEADY = 3.0  # seconds after which a connection that is still open is one: a vain try is closed at once
_STARTING = re.compile(
    r"no app command func for topic fedcm|cannot send to 'server\.[0-9a-f-]{36}'"
)  # a job not yet up
_SAME_AGAIN = 60.0  # seconds before the same error is told again
_LONGEST = 300  # characters of a line


@final
class EngineLog:
    """Turns one line after another into what is to be shown of it, or nothing."""

    def __init__(self, kit: Kit) -> None:
        self.kit = kit
        self.last = deque[str](maxlen=60)  # as they came, for when the engine dies
        self._lost = False  # the server has been told to be out of reach
        self._opened: tuple[tuple[str, ...], float] | None = None  # the newest connection, and since when
        self._said: dict[str, float] = {}

    def told(self, line: str) -> str | None:
        self.last.append(line)
        record = _RECORD.match(line)
        if record is None:
            return None
        logger, level, message = record["logger"], record["level"], record["message"].strip()
        if logger in _OURS:
            return _cut(message)
        if self.kit.kind == "site" and (change := self._reach(message)) is not None:
            return change or None
        for pattern, told in _TRANSLATED:
            if found := pattern.search(message):
                return _cut(told.format(**self._parts(found)))
        return self._fault(message) if level in ("ERROR", "CRITICAL") else None

    def why(self) -> str:
        """The last thing that went wrong, in the engine's own words."""
        for line in reversed(self.last):
            record = _RECORD.match(line)
            if record is None and re.match(r"\w[\w.]*(Error|Exception)\b", line):
                return _cut(line.strip())
            if record is not None and record["level"] in ("ERROR", "CRITICAL"):
                return _cut(record["message"].strip())
        return ""

    def while_quiet(self) -> str | None:
        """To be asked now and then: of a way that is open again the engine says nothing."""
        if not self._lost or self._opened is None or time.monotonic() - self._opened[1] < _STEADY:
            return None
        self._lost = False
        return f"the server at {self.kit.host}:{self.kit.port} answers again"

    def _reach(self, message: str) -> str | None:
        """What to say of the way to the server, "" for nothing, None where the message is not about it."""
        if opened := _OPENED.search(message):
            self._opened = (opened.groups(), time.monotonic())
        elif closed := _CLOSED.search(message):
            if self._opened is not None and self._opened[0] == closed.groups():
                self._opened = None
        elif _UNREACHED.search(message):
            before, self._lost = self._lost, True
            where = f"{self.kit.host}:{self.kit.port}"
            why = "`fedcm federation check` tells why"
            return "" if before else f"no answer from the server at {where}; trying again ({why})"
        elif "Successfully registered client:" in message:
            self._lost = False
        return None

    def _fault(self, message: str) -> str | None:
        now = time.monotonic()
        if _STARTING.search(message):
            return None
        if "Traceback (most recent call last)" in message or now - self._said.get(message, -_SAME_AGAIN) < _SAME_AGAIN:
            return None
        self._said = {said: when for said, when in self._said.items() if now - when < _SAME_AGAIN} | {message: now}
        return f"error: {_cut(message)}"

    def _parts(self, found: re.Match[str]) -> dict[str, Any]:
        code = found.groupdict().get("code")
        ending = "" if code in (None, "0") else f" before its end (code {code})"
        kit = {"host": self.kit.host, "port": self.kit.port, "admin_port": self.kit.admin_port}
        return kit | {"ending": ending} | found.groupdict()


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
