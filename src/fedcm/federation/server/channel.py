"""The seam between the rounds and whatever carries messages to the sites."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, final

from fedcm.federation.frames import Arrays


class Answer(NamedTuple):
    site: str
    words: Mapping[str, Any]
    arrays: Arrays


@final
class Deadline:
    """When to stop waiting; it can come nearer while somebody waits."""

    def __init__(self, seconds: float) -> None:
        self.start = time.monotonic()
        self.end = self.start + seconds

    def at_most(self, seconds: float) -> None:
        self.end = min(self.end, time.monotonic() + seconds)

    @property
    def passed(self) -> float:
        return time.monotonic() - self.start

    @property
    def left(self) -> float:
        return max(self.end - time.monotonic(), 0.0)


class Channel(Protocol):
    def reachable(self) -> set[str]:
        """The sites that take part now."""
        ...

    def reject_to_go_on(self) -> None:
        """Raises `Stopped` of `fedcm.core.executor` when nobody waits for the run any more."""
        ...

    def ask(
        self, task: str, words: Mapping[str, Any], arrays: Arrays, sites: Sequence[str], deadline: Deadline
    ) -> Iterator[Answer]:
        """Answers as they come, at most one a site, until all are there or the deadline has passed; or `Stopped`."""
        ...
