"""Alarms about sites: lines of a run's log that are also listed as alarms in the audit log."""

from typing import Self, final


@final
class SiteAlarm(str):
    """A line that asks a person to look at a site. It is a string, so that it can be logged like any other line."""

    __slots__ = ("site", "what")
    site: str
    what: str  # without the mark that makes it stand out in a log

    def __new__(cls, site: str, reason: str, round: int | None = None) -> Self:
        """Make the line from the reason, and the round if the alarm is about one."""
        place, advice = "" if round is None else f"round {round}: ", f"look at {site}: {reason}"
        line = super().__new__(cls, f"{place}ALARM: {advice}")
        line.site, line.what = site, place + advice
        return line
