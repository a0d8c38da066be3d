"""Run rounds over real sites: reports that are good and in time are averaged, and the other sites are logged.

The mean is over the sites that answered, and `Round.cohort_size` is their number. Reports are added as they arrive;
sums are exact, so the order does not change the result.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

from fedcm.config.sections import FederationSection
from fedcm.core.algorithm import Round, Vector
from fedcm.core.evaluation import Score
from fedcm.core.executor import RoundResult
from fedcm.errors import Stopped, UserError
from fedcm.executors.client_runner import ClientRunner
from fedcm.executors.local import evaluate_model, make_empty_result
from fedcm.federation.compression import count_array_bytes, pack_broadcast
from fedcm.federation.experiment import compute_quorum
from fedcm.federation.server.channel import Channel, Deadline, SiteAnswer
from fedcm.federation.server.collected_reports import CollectedReports
from fedcm.federation.server.health import SiteHealth
from fedcm.federation.server.remote_data import RemoteData
from fedcm.federation.server.replies import BadReply, ExpectedReply
from fedcm.federation.server.site_descriptions import describe_sites
from fedcm.federation.terms import NEVER, FederationRecord, reject_unfit_site
from fedcm.system.callbacks import Notify, StopRequested

_DOUBTFUL_WAIT = 5.0  # seconds, at least, for a site that missed its last round, once the quorum has answered
_POLL = 0.2  # seconds between checks whether enough sites are connected


class NoQuorum(Stopped):
    """Too few sites have answered for too many rounds."""


@final
@dataclass
class FederationExecutor:
    """Executes rounds by sending the broadcast to sites over a channel."""

    runner: ClientRunner
    data: RemoteData
    channel: Channel
    record: FederationRecord  # the run's sites and terms
    settings: FederationSection
    counted: dict[str, int]  # last counted and saved round of each site
    notify: Notify
    stop_requested: StopRequested
    save_record: Callable[[], None]  # called when a site has described itself for the first time
    health: SiteHealth = field(init=False)
    rounds_without_quorum: int = 0  # in a row

    def __post_init__(self) -> None:
        """Start with all sites healthy."""
        self.health = SiteHealth(self.settings.drop_after, self.settings.retry_after, self.notify)

    def run_round(self, sent: Any, cohort: np.ndarray, round: Round) -> RoundResult:
        """Send the broadcast to the cohort's sites and average the good reports.

        Raises:
            Stopped: If an admin or the engine stopped the run.
            NoQuorum: If too many rounds in a row had no quorum.
        """
        self._check_stopped()
        if not len(cohort):
            return make_empty_result(cohort)
        cohort_sites = [self.record.sites[client] for client in cohort.tolist()]
        selected = self.health.select_sites(cohort_sites, round.index) or cohort_sites
        quorum = compute_quorum(len(selected), self.settings.quorum)
        reasons = self._await_quorum(selected, quorum)  # by site, why it does not count
        reasons |= self._describe_new_sites([site for site in selected if site not in reasons], quorum)
        ready = [site for site in selected if site not in reasons]
        arrays = pack_broadcast(sent, self.settings)
        expected = self._make_expected_reply(round)
        weights = self.runner.compute_weights(cohort, self._bound_sizes(cohort))
        collected = CollectedReports(self.runner, sent, cohort, round, expected, weights, self.settings.norm_ratio)
        if len(ready) >= quorum:
            fields = {"run": self.record.id, "round": round.index, "terms": self.record.terms.model_dump()}
            fields["counted"] = {site: self.counted.get(site, NEVER) for site in ready}
            deadline = Deadline(self.settings.deadline)
            for answer in self.channel.ask("train", fields, arrays, ready, deadline):
                reasons |= self._collect(answer, collected)
                if len(collected.clients) >= quorum:
                    replied = {self.record.sites[client] for client in collected.clients} | set(reasons)
                    deadline.shorten(self._choose_wait(set(ready) - replied, deadline.elapsed))
        reasons |= {self.record.sites[client]: reason for client, reason in collected.screen().items()}
        answered = {self.record.sites[client] for client in collected.clients}
        for site in selected:
            if site in answered:
                self.health.record_answer(site)
            else:
                reason = reasons.get(site, "it did not answer in time")
                self.notify(f"round {round.index}: {site} does not count: {reason}")
                self.health.record_miss(site, round.index, silent=site not in reasons)
        metrics = {"clients": collected.clients, "asked": len(selected), "missed": sorted(set(selected) - answered)}
        metrics |= {"lost": self.health.lost_sites} if self.health.lost_sites else {}
        metrics |= self._report_influence(collected, round)
        metrics |= {"bytes_down": len(ready) * count_array_bytes(arrays), "bytes_up": collected.bytes}
        return self._make_result(
            collected, quorum, len(selected), round, metrics | {"local_seconds": collected.seconds}
        )

    def evaluate(self, params: Vector) -> dict[str, Score]:
        """Evaluate a model on the server's own test and validation examples."""
        return evaluate_model(self.runner, params)

    def _choose_wait(self, outstanding: set[str], elapsed: float) -> float:
        """Return how many seconds to wait for the outstanding sites once the quorum has answered.

        If all of them missed their last round, wait only as long again as the quorum took.
        """
        if not self.health.have_missed_last_round(outstanding):
            return self.settings.wait
        return min(self.settings.wait, max(elapsed, _DOUBTFUL_WAIT))

    def _collect(self, answer: SiteAnswer, collected: CollectedReports) -> dict[str, str]:
        """Add an answer; return why it does not count, if it does not."""
        client = self._get_client(answer.site)
        try:
            collected.add(client, answer)
            return {}
        except BadReply as error:
            examples = answer.fields.get("examples")
            if isinstance(examples, int) and examples != self.data.known_sizes.get(client):
                self.data.known_sizes.pop(client, None)  # its data may have changed: it must describe them again
            return {answer.site: str(error)}

    def _make_result(
        self, collected: CollectedReports, quorum: int, selected: int, round: Round, metrics: Mapping[str, Any]
    ) -> RoundResult:
        if len(collected.clients) < quorum:
            self.rounds_without_quorum += 1
            self.notify(
                f"round {round.index} changes nothing: {len(collected.clients)} of {selected} sites answered, "
                f"{quorum} needed"
            )
            if self.rounds_without_quorum >= self.settings.give_up_after:
                raise NoQuorum(
                    f"{self.rounds_without_quorum} rounds in a row had fewer answers than the quorum of {quorum}"
                )
            return make_empty_result(np.array([], dtype=np.int64))._replace(
                extra_metrics=dict(metrics) | {"clients": []}
            )
        self.rounds_without_quorum = 0
        result = collected.make_result()
        # sites hear of this with the next round, which begins only after this one is saved
        self.counted |= {self.record.sites[client]: round.index for client in collected.clients}
        return result._replace(extra_metrics={**result.extra_metrics, **metrics})

    def _report_influence(self, collected: CollectedReports, round: Round) -> dict[str, Any]:
        """Return the influence of each site for metrics.jsonl, and log an alarm for each site that stands out."""
        own = {self.record.sites[client]: one for client, one in collected.influence.items()}
        for site, influence in own.items():
            if influence.alarm is not None:
                self.notify(f"round {round.index}: ALARM: look at {site}: {influence.alarm}")
        return {"influence": {site: one.to_dict() for site, one in own.items()}} if own else {}

    def _get_client(self, site: str) -> int:
        return self.record.sites.index(site)

    def _make_expected_reply(self, round: Round) -> ExpectedReply:
        link, bound = self.settings.uplink, self.settings.norm_bound
        return ExpectedReply(self.record.id, round.index, self.runner.templates.report, link, bound)

    def _check_stopped(self) -> None:
        self.channel.check_stopped()
        if self.stop_requested():
            raise Stopped("an admin stopped it")

    def _await_quorum(self, selected: Sequence[str], quorum: int) -> dict[str, str]:
        """Wait until the quorum is connected or the deadline has passed; return why each absent site does not count."""
        deadline = Deadline(self.settings.deadline)
        while True:
            connected = self.channel.list_connected_sites()
            absent = {site: "it is not connected" for site in selected if site not in connected}
            if len(selected) - len(absent) >= quorum or deadline.remaining <= 0:
                return absent
            self._check_stopped()
            time.sleep(min(_POLL, deadline.remaining))

    def _bound_sizes(self, cohort: np.ndarray) -> np.ndarray:
        """Return the number of examples that each site counts for: at most its first one and `max_examples`."""
        most = self.settings.max_examples
        bounds = [self.record.examples.get(self.record.sites[client]) for client in cohort.tolist()]
        sizes = zip(self.data.sizes(cohort).tolist(), bounds, strict=True)
        return np.array([min(size, *(one for one in (first, most) if one is not None), size) for size, first in sizes])

    def _note_first_size(self, site: str, examples: int) -> None:
        """Keep the first number of examples that a site described: a later, larger one does not raise its weight."""
        if site not in self.record.examples:
            self.record.examples[site] = examples
            self.save_record()
        elif examples > self.record.examples[site]:
            self.notify(
                f"ALARM: look at {site}: it described {self.record.examples[site]} examples at first and {examples} "
                "now; its weight stays that of the first number"
            )

    def _describe_new_sites(self, sites: Sequence[str], quorum: int) -> dict[str, str]:
        """Ask sites whose data are not known to describe them; return why each unfit site does not count."""
        new = [site for site in sites if self._get_client(site) not in self.data.known_sizes]
        if not new:
            return {}
        new_quorum = max(quorum - (len(sites) - len(new)), 0)
        descriptions, reasons = describe_sites(self.channel, new, self.settings, new_quorum)
        for site, own in descriptions.items():
            try:
                reject_unfit_site(site, own, self.record.terms)
                self.data.known_sizes[self._get_client(site)] = own.examples
                self._note_first_size(site, own.examples)
            except UserError as error:
                reasons[site] = str(error)
        silent = [site for site in new if site not in descriptions and site not in reasons]
        return reasons | dict.fromkeys(silent, "it did not describe its data")
