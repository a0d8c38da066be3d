"""Which sites are worth asking: one that missed several rounds in a row is left out, and tried again later."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import final

Say = Callable[[str], None]


@final
@dataclass
class Health:
    drop_after: int  # misses in a row
    retry_after: int  # rounds
    say: Say
    misses: dict[str, int] = field(default_factory=dict)
    back_in: dict[str, int] = field(default_factory=dict)  # the round in which a dropped site is asked again
    silent: set[str] = field(default_factory=set)  # who said nothing at all when it was asked last

    def worth_asking(self, sites: Sequence[str], round: int) -> list[str]:
        return [site for site in sites if self.back_in.get(site, 0) <= round]

    def doubtful(self, sites: Iterable[str]) -> bool:
        """Has each of these missed the last time it was asked?"""
        return all(site in self.misses for site in sites)

    @property
    def lost(self) -> list[str]:
        """Left out, and not for anything that they said: another job may find them well."""
        return sorted(self.silent & set(self.back_in))

    def answered(self, site: str) -> None:
        self.silent.discard(site)
        if site in self.back_in:
            self.say(f"{site} is back")
        self.misses.pop(site, None)
        self.back_in.pop(site, None)

    def missed(self, site: str, round: int, *, silent: bool) -> None:
        (self.silent.add if silent else self.silent.discard)(site)
        self.misses[site] = self.misses.get(site, 0) + 1
        if self.misses[site] >= self.drop_after:
            self.back_in[site] = round + self.retry_after + 1
            self.say(
                f"{site} missed {self.misses[site]} rounds in a row and is asked again in round {self.back_in[site]}"
            )
