"""Decide which connections and logins the server accepts, and record alarms.

Two rules hold for every connection over TLS. Its certificate must be of a member, by the organiser's signed list, which
is read again when it changes. And a name has one connection: while the first one answers, a second one with a copy of
the certificate is refused. A restarted site comes back at once, because the system closes the connections of a process
that ends. After a broken link, it comes back as soon as the old connection does not answer a ping.
"""

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, final

from fedcm.errors import UserError
from fedcm.federation.certificate import Certificate
from fedcm.federation.kit import Kit
from fedcm.federation.trust.audit import AuditLog
from fedcm.federation.trust.members import MEMBERS_FILE, MemberList, read_members

_REPEAT = 60.0  # seconds before the same alarm is raised again


@final
class Gatekeeper:
    """Knows the members of a server's federation."""

    def __init__(self, kit: Kit, audit: AuditLog) -> None:
        """Read the list of members of the server's kit; raise UserError if there is no valid one."""
        self.file = kit.path / MEMBERS_FILE
        self.root = kit.root
        self.audit = audit
        self.logger = logging.getLogger(type(self).__name__)
        self._changed = _get_stamp(self.file)
        self.members = read_members(self.file, kit.root)
        self._enforced = self.members.number  # of the list that open connections were last compared with
        self._raised: dict[str, float] = {}
        self._lock = threading.Lock()

    def find_objection(self, certificate: Certificate) -> str:
        """Return why a certificate's holder may not connect; empty if it may."""
        self.refresh()
        return self.members.find_objection(certificate)

    def refresh(self) -> MemberList | None:
        """Read the list again if its file has changed, and return it if it has replaced the one before.

        A missing, damaged or older list changes nothing and raises an alarm.
        """
        with self._lock:
            stamp = _get_stamp(self.file)
            if stamp == self._changed:
                return None
            self._changed = stamp
            try:
                read = read_members(self.file, self.root)
            except UserError as error:
                self.raise_alarm(f"the list of members was not taken over: {error}")
                return None
            if read.number < self.members.number or read.federation != self.members.federation:
                self.raise_alarm(
                    f"the list of members was not taken over: its number must be above {self.members.number}, got "
                    f"{read.number}"
                )
                return None
            if read.number == self.members.number:
                return None
            self.members = read
        self.logger.info(f"took over the list of members {read.number}")
        self.audit.append(
            "members",
            number_of_list=read.number,
            members=[member.name for member in read.members],
            removed=[removed.model_dump() for removed in read.removed],
        )
        return read

    def raise_alarm(self, what: str, *, about: str = "", **fields: Any) -> None:
        """Write an alarm to the server's log and to the audit log, at most once per minute.

        Args:
            what: One sentence.
            about: What counts as the same alarm; by default the sentence. Give it if the sentence contains a text of
                the sender, who could otherwise fill the logs with ever new ones.
            **fields: More fields of the audit log.
        """
        about, now = about or what, time.monotonic()
        if now - self._raised.get(about, -_REPEAT) < _REPEAT:
            return
        self._raised = {one: when for one, when in self._raised.items() if now - when < _REPEAT} | {about: now}
        self.logger.error(f"ALARM: {what}")
        self.audit.append("alarm", what=what, **fields)

    def enforce(self, on_change: Callable[[], None]) -> None:
        """Call a function if the list is another one than at the last call that succeeded.

        What counts is the number of the list: a new connection may have read the list before.
        """
        self.refresh()
        number = self.members.number  # before the call, in which a newer list may be read
        if number != self._enforced:
            on_change()
            self._enforced = number

    def watch(self, on_change: Callable[[], None], interval: float = 1.0) -> threading.Thread:
        """Start a thread that calls a function whenever the list has changed, again and again until it succeeds."""

        def run() -> None:
            while True:
                time.sleep(interval)
                try:
                    self.enforce(on_change)
                except Exception:  # the watch must go on
                    self.logger.exception("the list of members could not be enforced")

        thread = threading.Thread(target=run, name="members", daemon=True)
        thread.start()
        return thread


def _get_stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
