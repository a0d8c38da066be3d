"""Kill processes of a federation at random times: what and when follow from a seed, what they hit does not."""

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import final

import psutil
from fleet import Fleet

KINDS = {"training": 6, "site": 2, "server's job": 2, "server": 1}  # with their relative frequencies
PAUSES = (2.0, 20.0)  # seconds between two kills, at least and at most
OUTAGES = (1.0, 12.0)  # seconds before a killed site or server is started again


@final
@dataclass
class Killer:
    """Kills processes when they are due, and starts sites and the server again."""

    fleet: Fleet
    sites: Sequence[str]
    random: random.Random
    say: Callable[[str], None]
    kills: Counter[str] = field(default_factory=Counter)
    down: dict[str, float] = field(default_factory=dict)  # by party, when it is started again
    next_kill: float = 0.0

    def rest(self) -> None:
        """Wait before the next kill."""
        self.next_kill = time.monotonic() + self.random.uniform(*PAUSES)

    def step(self) -> None:
        """Start what is due to return, and kill something if it is time."""
        self.restart(time.monotonic())
        if time.monotonic() < self.next_kill:
            return
        kind = self.random.choices(list(KINDS), list(KINDS.values()))[0]
        victim = self.random.choice(self.sites)
        if self._kill(kind, victim):
            self.kills[kind] += 1
        self.rest()

    def restart(self, now: float = float("inf")) -> None:
        """Start the parties whose outage is over; all of them by default."""
        for name in [name for name, due in self.down.items() if due <= now]:
            del self.down[name]
            self.say(f"start {name}")
            self.fleet.start_server(wait=False) if name == "server" else self.fleet.start_site(name, wait=False)

    def _kill(self, kind: str, site: str) -> bool:
        """Return whether there was something to kill; only one party is down at a time."""
        if kind in ("site", "server"):
            name = site if kind == "site" else "server"
            if self.down:
                return False
            self.say(f"kill {'site ' * (kind == 'site')}{name}")
            self.fleet.running[name].kill()
            self.down[name] = time.monotonic() + self.random.uniform(*OUTAGES)
            return True
        party, part = ("server", "job") if kind == "server's job" else (site, "training")
        process = None if party in self.down else self.fleet.running[party].find(part)
        if process is None:
            return False
        self.say(f"kill the {part} of {party}")
        with suppress(psutil.NoSuchProcess):
            process.kill()
        return True
