"""The interface between the round loop and the engine that carries messages to the sites."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, final

from fedcm.federation.frames import Arrays


class SiteAnswer(NamedTuple):
    """A site's answer to a task."""

    site: str
    fields: Mapping[str, Any]
    arrays: Arrays


@final
class Deadline:
    """When to stop waiting; `shorten` can move it while somebody waits."""

    def __init__(self, seconds: float) -> None:
        """Set the deadline to `seconds` from now."""
        self.start = time.monotonic()
        self.end = self.start + seconds

    def shorten(self, seconds: float) -> None:
        """Leave at most this many seconds from now."""
        self.end = min(self.end, time.monotonic() + seconds)

    @property
    def elapsed(self) -> float:
        """Seconds since the deadline was set."""
        return time.monotonic() - self.start

    @property
    def remaining(self) -> float:
        """Seconds until the deadline, at least 0."""
        return max(self.end - time.monotonic(), 0.0)


class Channel(Protocol):
    """Sends tasks to sites and receives their answers."""

    def list_connected_sites(self) -> set[str]:
        """Return the sites that are connected now."""
        ...

    def check_stopped(self) -> None:
        """Raise `Stopped` if the engine has ended the job."""
        ...

    def limit_replies(self, size: int) -> None:
        """Refuse replies of more than `size` bytes from now on."""
        ...

    def ask(
        self, task: str, fields: Mapping[str, Any], arrays: Arrays, sites: Sequence[str], deadline: Deadline
    ) -> Iterator[SiteAnswer]:
        """Send a task and yield the answers as they arrive, at most one per site, until the deadline.

        Raises:
            Stopped: If the engine has ended the job.
        """
        ...
