"""Limit how often one party may do something, so that it cannot take the server's time from the others."""

import threading
import time
from collections.abc import Callable
from typing import NamedTuple, final

Clock = Callable[[], float]


class Rate(NamedTuple):
    """How often something may happen."""

    per_second: float  # in the long run
    burst: int  # at once, after a pause


@final
class RateLimit:
    """Counts what each party does, as a bucket of tokens that fills again with time."""

    def __init__(self, rate: Rate, clock: Clock = time.monotonic) -> None:
        """Start with full buckets."""
        self.rate = rate
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}  # by name: tokens, and when they were counted
        self._lock = threading.Lock()

    def take(self, name: str, cost: float = 1.0) -> float:
        """Count something that cannot be refused, and return how many seconds the party has to wait after it."""
        with self._lock:
            tokens = self._count(name) - cost
            self._buckets[name] = tokens, self._buckets[name][1]
        return max(-tokens, 0.0) / self.rate.per_second

    def allow(self, name: str) -> bool:
        """Count something unless it happens too often, and return whether it may happen."""
        with self._lock:
            tokens = self._count(name)
            if tokens < 1:
                return False
            self._buckets[name] = tokens - 1, self._buckets[name][1]
        return True

    def _count(self, name: str) -> float:
        now = self._clock()
        tokens, before = self._buckets.get(name, (float(self.rate.burst), now))
        tokens = min(tokens + (now - before) * self.rate.per_second, self.rate.burst)
        self._buckets[name] = tokens, now
        return tokens
