"""Which sites are worth asking: a site that misses several rounds in a row is left out and asked again later."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import final

from fedcm.system.callbacks import Notify


@final
@dataclass
class SiteHealth:
    """Counts the rounds that sites miss."""

    drop_after: int  # misses in a row
    retry_after: int  # rounds
    notify: Notify
    misses: dict[str, int] = field(default_factory=dict)
    retry_round: dict[str, int] = field(default_factory=dict)  # the round in which a dropped site is asked again
    silent: set[str] = field(default_factory=set)  # sites that did not answer at all when last asked

    def select_sites(self, sites: Sequence[str], round: int) -> list[str]:
        """Return the sites that are not left out of a round."""
        return [site for site in sites if self.retry_round.get(site, 0) <= round]

    def have_missed_last_round(self, sites: Iterable[str]) -> bool:
        """Return whether each of these sites missed the last round it was asked in."""
        return all(site in self.misses for site in sites)

    @property
    def lost_sites(self) -> list[str]:
        """Sites that are left out because they were silent; a new job may reach them again."""
        return sorted(self.silent & set(self.retry_round))

    def record_answer(self, site: str) -> None:
        """Note that a site's answer counted."""
        self.silent.discard(site)
        if site in self.retry_round:
            self.notify(f"{site} is back")
        self.misses.pop(site, None)
        self.retry_round.pop(site, None)

    def record_miss(self, site: str, round: int, *, silent: bool) -> None:
        """Note that a site missed a round, because it was silent or because its answer did not count."""
        (self.silent.add if silent else self.silent.discard)(site)
        self.misses[site] = self.misses.get(site, 0) + 1
        if self.misses[site] >= self.drop_after:
            self.retry_round[site] = round + self.retry_after + 1
            self.notify(
                f"{site} missed {self.misses[site]} rounds in a row and is asked again in round "
                f"{self.retry_round[site]}"
            )
