"""Run rounds over real sites: reports that are good and in time are averaged, and the other sites are logged.

The mean is over the sites that answered, and `Round.cohort_size` is their number. Reports are added as they arrive;
sums are exact, so the order does not change the result.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, final

import numpy as np

from fedcm.config.sections import FederationSection
from fedcm.core.aggregation import PlainMean, PrivateMean
from fedcm.core.algorithm import Round, Vector
from fedcm.core.evaluation import Score
from fedcm.core.executor import RoundResult
from fedcm.core.scoring.over_clients import ClientScores
from fedcm.errors import Stopped
from fedcm.executors.client_runner import ClientRunner
from fedcm.executors.local import evaluate_model, make_empty_result
from fedcm.federation.compression import count_array_bytes, pack_broadcast
from fedcm.federation.experiment import bound_examples, compute_least_sites, compute_quorum
from fedcm.federation.private.commitments import Commitments, hash_integers
from fedcm.federation.server.alarms import SiteAlarm
from fedcm.federation.server.channel import Channel, SiteAnswer
from fedcm.federation.server.health import SiteHealth
from fedcm.federation.server.remote_data import RemoteData
from fedcm.federation.server.replies import BadReply, ExpectedReply, compute_reply_limit
from fedcm.federation.server.reports.collected_reports import CollectedReports
from fedcm.federation.server.reports.screening import OPPOSED, ScreeningRules
from fedcm.federation.server.reports.secure_reports import SecureReports
from fedcm.federation.server.requests import SILENT, SiteRequests
from fedcm.federation.server.site_scores import SiteScores
from fedcm.federation.terms import FederationRecord
from fedcm.system.callbacks import Notify, StopRequested

_NORM_RATIO = 5.0  # the default of `federation.norm_ratio`, for the plain mean


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
    released: Commitments  # which sums the server has added noise to
    health: SiteHealth = field(init=False)
    requests: SiteRequests = field(init=False)
    site_scores: SiteScores = field(init=False)
    rounds_without_quorum: int = 0  # in a row
    last_round: int = 0  # the round that was run last

    def __post_init__(self) -> None:
        """Start with all sites healthy."""
        self.channel.limit_replies(compute_reply_limit(self.runner.templates.report))
        self.health = SiteHealth(self.settings.drop_after, self.settings.retry_after, self.notify)
        self.requests = SiteRequests(
            self.channel,
            self.record,
            self.settings,
            self.data,
            self.health,
            self.counted,
            self.stop_requested,
            self.notify,
            self.save_record,
        )
        self.site_scores = SiteScores(self.runner, self.requests, self.notify)

    def run_round(self, sent: Any, cohort: np.ndarray, round: Round) -> RoundResult:
        """Send the broadcast to the cohort's sites and average the good reports.

        Raises:
            Stopped: If an admin or the engine stopped the run.
            NoQuorum: If too many rounds in a row had no quorum.
        """
        self.requests.check_stopped()
        self.last_round = round.index
        if not len(cohort):
            return make_empty_result(cohort)
        cohort_sites = [self.record.sites[client] for client in cohort.tolist()]
        selected = self.health.select_sites(cohort_sites, round.index) or cohort_sites
        quorum = self._choose_quorum(len(selected))
        reasons = self.requests.prepare(selected, quorum)  # by site, why it does not count
        ready = [site for site in selected if site not in reasons]
        arrays = pack_broadcast(sent, self.settings)
        collected = self._start_reports(sent, cohort, round)
        if len(ready) >= quorum:
            take = partial(self._collect, collected)
            reasons |= self.requests.ask("train", round.index, arrays, ready, quorum, take)
        down = len(ready) * count_array_bytes(arrays)
        if isinstance(collected, SecureReports):
            reasons |= collected.aggregate(self.requests)
            down += collected.bytes_down
        else:
            reasons |= self._screen(collected, round)
        answered = {self.record.sites[client] for client in collected.answered}
        for site in selected:
            if site in answered:
                self.health.record_answer(site)
            else:
                self.notify(f"round {round.index}: {site} does not count: {reasons.get(site, SILENT)}")
                self.health.record_miss(site, round.index, silent=site not in reasons)
        metrics = {"clients": collected.clients, "asked": len(selected), "missed": sorted(set(selected) - answered)}
        metrics |= {"lost": self.health.lost_sites} if self.health.lost_sites else {}
        metrics |= {} if isinstance(collected, SecureReports) else self._report_influence(collected, round)
        metrics |= {"bytes_down": down, "bytes_up": collected.bytes}
        return self._make_result(
            collected, quorum, len(selected), round, metrics | {"local_seconds": collected.seconds}
        )

    def evaluate(self, params: Vector) -> dict[str, Score]:
        """Evaluate a model on the server's own test and validation examples, or on those that sites hold back."""
        if self.data.shares.validation is None:
            return evaluate_model(self.runner, params)
        own = evaluate_model(self.runner, params, ("test",))
        return own | self.site_scores.validate(params, self.last_round)

    def evaluate_clients(self, params: Vector, round: Round) -> ClientScores:
        """Evaluate a model on the test data of each site; see `ClientTestExecutor`."""
        return self.site_scores.evaluate_clients(params, round.index)

    def _choose_quorum(self, selected: int) -> int:
        """Return how many of the selected sites must report."""
        quorum = compute_quorum(selected, self.settings.quorum)
        return max(quorum, compute_least_sites(self.settings)) if self.settings.secure_aggregation else quorum

    def _start_reports(self, sent: Any, cohort: np.ndarray, round: Round) -> CollectedReports | SecureReports:
        sizes = self._bound_sizes(cohort)
        if self.settings.secure_aggregation:
            return SecureReports(self.runner, sent, cohort, round, self.record.id, self.settings, sizes)
        expected, weights = self._make_expected_reply(round), self.runner.compute_weights(cohort, sizes)
        return CollectedReports(self.runner, sent, cohort, round, expected, weights, self._choose_rules())

    def _choose_rules(self) -> ScreeningRules:
        if isinstance(self.runner.aggregation, PrivateMean):
            return ScreeningRules()  # no report may decide whether another one counts
        ratio, cosine = self.settings.norm_ratio, self.settings.min_cosine
        if ratio is None:  # a robust mean bounds long reports itself, and a shortened one would look ordinary to it
            ratio = _NORM_RATIO if isinstance(self.runner.aggregation, PlainMean) else 0.0
        return ScreeningRules(ratio, OPPOSED if cosine is None else cosine)

    def _collect(self, collected: CollectedReports | SecureReports, client: int, answer: SiteAnswer) -> None:
        """Add an answer; raise BadReply if it does not count."""
        try:
            collected.add(client, answer)
        except BadReply:
            examples = answer.fields.get("examples")
            if isinstance(examples, int) and examples != self.data.known_sizes.get(client):
                self.data.known_sizes.pop(client, None)  # its data may have changed: it must describe them again
            raise

    def _make_result(
        self,
        collected: CollectedReports | SecureReports,
        quorum: int,
        selected: int,
        round: Round,
        metrics: Mapping[str, Any],
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
            return _make_unchanged(metrics)
        self.rounds_without_quorum = 0
        if not self._commit(collected, round):
            self.notify(
                f"round {round.index} changes nothing: its private mean was computed before, over other reports, and a "
                "round has one private mean"
            )
            return _make_unchanged(metrics)
        result = collected.make_result()
        # sites hear of this with the next round, which begins only after this one is saved
        self.counted |= {self.record.sites[client]: round.index for client in collected.clients}
        unknown = {"loss": None} if isinstance(self.runner.aggregation, PrivateMean) else {}
        return result._replace(extra_metrics={**result.extra_metrics, **metrics, **unknown})

    def _commit(self, collected: CollectedReports | SecureReports, round: Round) -> bool:
        """Return whether the server may add noise to this sum: the round has no other sum with the same noise."""
        mean = self.runner.aggregation
        if not isinstance(mean, PrivateMean) or mean.key is None:  # or the sites have added noise
            return True
        return self.released.commit(round.index, hash_integers(collected.reports.sum.totals, mean.key))

    def _screen(self, collected: CollectedReports, round: Round) -> dict[str, str]:
        """Compare the reports, log an alarm about each that stands out, and return by site why it does not count."""
        left_out = {self.record.sites[client]: reason for client, reason in collected.screen().items()}
        shortened = {self.record.sites[client]: reason for client, reason in collected.shortened.items()}
        for site, reason in (left_out | shortened).items():
            self.notify(SiteAlarm(site, reason, round.index))
        return left_out

    def _report_influence(self, collected: CollectedReports, round: Round) -> dict[str, Any]:
        """Return each site's influence and the shortened ones for metrics.jsonl; log an alarm about large influence."""
        own = {self.record.sites[client]: one for client, one in collected.influence.items()}
        shortened = sorted(self.record.sites[client] for client in collected.shortened)
        counted = {self.record.sites[client] for client in collected.clients}  # of the others there is an alarm already
        for site, influence in own.items():
            if influence.alarm is not None and site in counted:
                self.notify(SiteAlarm(site, influence.alarm, round.index))
        metrics = {"influence": {site: one.to_dict() for site, one in own.items()}} if own else {}
        return metrics | ({"shortened": shortened} if shortened else {})

    def _bound_sizes(self, cohort: np.ndarray) -> np.ndarray:
        """Return the number of examples that each site counts for: at most its first one and `max_examples`."""
        sizes = dict(zip(cohort.tolist(), self.data.sizes(cohort).tolist(), strict=True))
        for client, size in sizes.items():
            first = self.record.examples.get(self.record.sites[client])
            most = size if first is None else min(size, self.data.shares.count_training(first))
            sizes[client] = bound_examples(most, self.settings)
        return np.array(list(sizes.values()))

    def _make_expected_reply(self, round: Round) -> ExpectedReply:
        link, bound = self.settings.uplink, self.settings.norm_bound
        has_loss = not isinstance(self.runner.aggregation, PrivateMean)
        return ExpectedReply(self.record.id, round.index, self.runner.templates.report, link, bound, has_loss)


def _make_unchanged(metrics: Mapping[str, Any]) -> RoundResult:
    """Return the result of a round that changes nothing."""
    return make_empty_result(np.array([], dtype=np.int64))._replace(extra_metrics={**metrics, "clients": []})
