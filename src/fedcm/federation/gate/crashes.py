"""Count how often a site's part of a job crashes, so that one site cannot end everybody's run again and again."""

import time
from typing import final

MAX_CRASHES = 2  # of a site within the window; the next ones do not end the job for the other sites
_WINDOW = 3600.0  # seconds


@final
class CrashCounter:
    """The recent crashes of each site."""

    def __init__(self) -> None:
        """Start with no crash."""
        self._times: dict[str, list[float]] = {}

    def add(self, site: str) -> bool:
        """Count a crash, and return whether the site has crashed too often to end a job for the others."""
        now = time.monotonic()
        recent = [when for when in self._times.get(site, []) if now - when < _WINDOW]
        self._times[site] = [*recent, now][-MAX_CRASHES - 1 :]
        return len(recent) >= MAX_CRASHES
