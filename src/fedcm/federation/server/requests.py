"""Requests to the sites of a run: wait for the quorum, let new sites describe their data, collect the answers."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from fedcm.config.sections import FederationSection
from fedcm.errors import Stopped, UserError
from fedcm.federation.frames import Arrays
from fedcm.federation.server.alarms import SiteAlarm
from fedcm.federation.server.channel import Channel, Deadline, SiteAnswer
from fedcm.federation.server.health import SiteHealth
from fedcm.federation.server.remote_data import RemoteData
from fedcm.federation.server.replies import BadReply
from fedcm.federation.server.site_descriptions import describe_sites
from fedcm.federation.terms import NEVER, FederationRecord, reject_unfit_site
from fedcm.system.callbacks import Notify, StopRequested

_DOUBTFUL_WAIT = 5.0  # seconds, at least, for a site that missed its last round, once the quorum has answered
_POLL = 0.2  # seconds between checks whether enough sites are connected
SILENT = "it did not answer in time"


@final
@dataclass
class SiteRequests:
    """Sends requests to the sites of a run."""

    channel: Channel
    record: FederationRecord  # the run's sites and terms
    settings: FederationSection
    data: RemoteData
    health: SiteHealth
    counted: dict[str, int]  # last counted and saved round of each site
    stop_requested: StopRequested
    notify: Notify
    save_record: Callable[[], None]  # called when a site has described itself for the first time

    def prepare(self, sites: Sequence[str], quorum: int) -> dict[str, str]:
        """Wait until the quorum is connected and its data are known; return why each of the other sites cannot answer.

        Raises:
            Stopped: If an admin or the engine stopped the run.
        """
        self.check_stopped()
        reasons = self._await_quorum(sites, quorum)
        return reasons | self._describe_new_sites([site for site in sites if site not in reasons], quorum)

    def ask(
        self,
        task: str,
        round: int,
        arrays: Arrays,
        sites: Sequence[str],
        quorum: int,
        take: Callable[[int, SiteAnswer], None],
    ) -> dict[str, str]:
        """Send a request and take the answers until the deadline; return why each bad answer does not count.

        Once `quorum` good answers are there, the other sites have only `federation.wait` seconds.

        Args:
            task: The kind of the request.
            round: The round's index.
            arrays: The vectors of the request.
            sites: The sites to ask.
            quorum: The number of good answers that is needed.
            take: Takes the answer of a client; raises BadReply if it does not count.
        """
        fields = {
            "run": self.record.id,
            "round": round,
            "terms": self.record.terms.model_dump(),
            "counted": {site: self.counted.get(site, NEVER) for site in sites},
        }
        return self.exchange(task, fields, arrays, sites, quorum, take)

    def exchange(
        self,
        task: str,
        fields: Mapping[str, Any],
        arrays: Arrays,
        sites: Sequence[str],
        quorum: int,
        take: Callable[[int, SiteAnswer], None],
    ) -> dict[str, str]:
        """Send a request with these fields; the other arguments and what is returned are as in `ask`."""
        reasons, good, deadline = dict[str, str](), set[str](), Deadline(self.settings.deadline)
        for answer in self.channel.ask(task, fields, arrays, sites, deadline):
            try:
                take(self.get_client(answer.site), answer)
                good.add(answer.site)
            except BadReply as error:
                reasons[answer.site] = str(error)
            if len(good) >= quorum:
                deadline.shorten(self._choose_wait(set(sites) - good - set(reasons), deadline.elapsed))
        return reasons

    def get_client(self, site: str) -> int:
        """Return the index of a site among the run's sites."""
        return self.record.sites.index(site)

    def check_stopped(self) -> None:
        """Raise `Stopped` if an admin or the engine stopped the run."""
        self.channel.check_stopped()
        if self.stop_requested():
            raise Stopped("an admin stopped it")

    def _choose_wait(self, outstanding: set[str], elapsed: float) -> float:
        """Return how many seconds to wait for the outstanding sites once the quorum has answered.

        If all of them missed their last round, wait only as long again as the quorum took.
        """
        if not self.health.have_missed_last_round(outstanding):
            return self.settings.wait
        return min(self.settings.wait, max(elapsed, _DOUBTFUL_WAIT))

    def _await_quorum(self, selected: Sequence[str], quorum: int) -> dict[str, str]:
        """Wait until the quorum is connected or the deadline has passed; return why each absent site does not count."""
        deadline = Deadline(self.settings.deadline)
        while True:
            connected = self.channel.list_connected_sites()
            absent = {site: "it is not connected" for site in selected if site not in connected}
            if len(selected) - len(absent) >= quorum or deadline.remaining <= 0:
                return absent
            self.check_stopped()
            time.sleep(min(_POLL, deadline.remaining))

    def _describe_new_sites(self, sites: Sequence[str], quorum: int) -> dict[str, str]:
        """Ask sites whose data are not known to describe them; return why each unfit site does not count."""
        new = [site for site in sites if self.get_client(site) not in self.data.known_sizes]
        if not new:
            return {}
        new_quorum = max(quorum - (len(sites) - len(new)), 0)
        descriptions, reasons = describe_sites(self.channel, new, self.settings, new_quorum)
        for site, own in descriptions.items():
            try:
                reject_unfit_site(site, own, self.record.terms)
                self.data.known_sizes[self.get_client(site)] = own.examples
                self._note_first_size(site, own.examples)
            except UserError as error:
                reasons[site] = str(error)
        silent = [site for site in new if site not in descriptions and site not in reasons]
        return reasons | dict.fromkeys(silent, "it did not describe its data")

    def _note_first_size(self, site: str, examples: int) -> None:
        """Keep the first number of examples that a site described: a later, larger one does not raise its weight."""
        if site not in self.record.examples:
            self.record.examples[site] = examples
            self.save_record()
        elif examples > self.record.examples[site]:
            reason = (
                f"it described {self.record.examples[site]} examples at first and {examples} now; its weight stays "
                "that of the first number"
            )
            self.notify(SiteAlarm(site, reason))
