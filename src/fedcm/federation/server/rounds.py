"""Run rounds over real sites: reports that are good and in time are averaged, and the other sites are logged.

The mean is over the sites that answered, and `Round.cohort` is their number. Reports are added as they arrive; sums are
exact, so the order does not change the result.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

from fedcm.config.schema import read_section
from fedcm.config.sections import FederationSection
from fedcm.core.algorithm import Round, Vector, get_message_types
from fedcm.core.evaluation import Score
from fedcm.core.exact_mean import ExactMean, OutOfRange
from fedcm.core.executor import RoundResult
from fedcm.errors import Stopped, UserError
from fedcm.executors.client_runner import ClientRunner
from fedcm.executors.local import evaluate_model, make_empty_result, summarise_round
from fedcm.federation.compression import count_bytes, pack_broadcast
from fedcm.federation.experiment import compute_quorum
from fedcm.federation.server.channel import Channel, Deadline, SiteAnswer
from fedcm.federation.server.health import SiteHealth
from fedcm.federation.server.remote_data import RemoteData
from fedcm.federation.server.replies import BadReply, ExpectedReply, check_reply
from fedcm.federation.terms import NEVER, Description, FederationRecord, reject_unfit_site

Say = Callable[[str], None]

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
    say: Say
    stop_requested: Callable[[], bool]
    health: SiteHealth = field(init=False)
    without_quorum: int = 0  # rounds in a row

    def __post_init__(self) -> None:
        """Start with all sites healthy."""
        self.health = SiteHealth(self.settings.drop_after, self.settings.retry_after, self.say)

    def run_round(self, sent: Any, cohort: np.ndarray, round: Round) -> RoundResult:
        """Send the broadcast to the cohort's sites and average the good reports.

        Raises:
            Stopped: an admin or the engine stopped the run.
            NoQuorum: too many rounds in a row had no quorum.
        """
        self._check_stopped()
        if not len(cohort):
            return make_empty_result(cohort)
        drawn = [self.record.sites[client] for client in cohort.tolist()]
        asked = self.health.select_sites(drawn, round.index) or drawn
        needed = compute_quorum(len(asked), self.settings.quorum)
        reasons = self._await_quorum(asked, needed)  # by site, why it does not count
        reasons |= self._describe_new_sites([site for site in asked if site not in reasons], needed)
        ready = [site for site in asked if site not in reasons]
        arrays = pack_broadcast(sent, self.settings)
        collected = _CollectedReports(self.runner, sent.params, cohort, self._make_expected(sent, round))
        if len(ready) >= needed:
            words = {"run": self.record.id, "round": round.index, "terms": self.record.terms.model_dump()}
            words["counted"] = {site: self.counted.get(site, NEVER) for site in ready}
            deadline = Deadline(self.settings.deadline)
            for answer in self.channel.ask("train", words, arrays, ready, deadline):
                reasons |= self._collect(answer, collected)
                if len(collected.clients) >= needed:
                    heard = {self.record.sites[client] for client in collected.clients} | set(reasons)
                    deadline.shorten(self._choose_wait(set(ready) - heard, deadline.passed))
        answered = {self.record.sites[client] for client in collected.clients}
        for site in asked:
            if site in answered:
                self.health.record_answer(site)
            else:
                reason = reasons.get(site, "it did not answer in time")
                self.say(f"round {round.index}: {site} does not count: {reason}")
                self.health.record_miss(site, round.index, silent=site not in reasons)
        metrics = {"clients": collected.clients, "asked": len(asked), "missed": sorted(set(asked) - answered)}
        metrics |= {"lost": self.health.lost} if self.health.lost else {}
        metrics |= {"bytes_down": len(ready) * count_bytes(arrays), "bytes_up": collected.bytes}
        return self._make_result(collected, needed, len(asked), round, metrics | {"local_seconds": collected.seconds})

    def evaluate(self, params: Vector) -> Score | None:
        """Evaluate a model on the server's test examples; None if it has none."""
        return evaluate_model(self.runner, params)

    def _choose_wait(self, outstanding: set[str], passed: float) -> float:
        """Return how many seconds to wait for the outstanding sites once the quorum has answered.

        If all of them missed their last round, wait only as long again as the quorum took.
        """
        if not self.health.are_doubtful(outstanding):
            return self.settings.wait
        return min(self.settings.wait, max(passed, _DOUBTFUL_WAIT))

    def _collect(self, answer: SiteAnswer, collected: "_CollectedReports") -> dict[str, str]:
        """Add an answer; return why it does not count, if it does not."""
        client = self._get_client(answer.site)
        try:
            collected.add(client, answer)
            return {}
        except BadReply as error:
            examples = answer.words.get("examples")
            if isinstance(examples, int) and examples != self.data.known_sizes.get(client):
                self.data.known_sizes.pop(client, None)  # its data may have changed: it must describe them again
            return {answer.site: str(error)}

    def _make_result(
        self, collected: "_CollectedReports", needed: int, asked: int, round: Round, metrics: Mapping[str, Any]
    ) -> RoundResult:
        if len(collected.clients) < needed:
            self.without_quorum += 1
            self.say(
                f"round {round.index} changes nothing: {len(collected.clients)} of {asked} sites answered, "
                f"{needed} needed"
            )
            if self.without_quorum >= self.settings.give_up_after:
                raise NoQuorum(f"{self.without_quorum} rounds in a row had fewer answers than the quorum of {needed}")
            return make_empty_result(np.array([], dtype=np.int64))._replace(
                extra_metrics=dict(metrics) | {"clients": []}
            )
        self.without_quorum = 0
        result = collected.make_result()
        # sites hear of this with the next round, which begins only after this one is saved
        self.counted |= {self.record.sites[client]: round.index for client in collected.clients}
        return result._replace(extra_metrics=metrics)

    def _get_client(self, site: str) -> int:
        return self.record.sites.index(site)

    def _make_expected(self, sent: Any, round: Round) -> ExpectedReply:
        kind, params = get_message_types(type(self.runner.algorithm)).report, sent.params
        link, bound = self.settings.uplink, self.settings.norm_bound
        return ExpectedReply(self.record.id, round.index, kind, params.numel(), params.dtype, link, bound)

    def _check_stopped(self) -> None:
        self.channel.check_stopped()
        if self.stop_requested():
            raise Stopped("an admin stopped it")

    def _await_quorum(self, asked: Sequence[str], needed: int) -> dict[str, str]:
        """Wait until the quorum is connected or the deadline has passed; return why each absent site does not count."""
        deadline = Deadline(self.settings.deadline)
        while True:
            connected = self.channel.reachable()
            absent = {site: "it is not connected" for site in asked if site not in connected}
            if len(asked) - len(absent) >= needed or deadline.left <= 0:
                return absent
            self._check_stopped()
            time.sleep(min(_POLL, deadline.left))

    def _describe_new_sites(self, sites: Sequence[str], needed: int) -> dict[str, str]:
        """Ask sites whose data are not known to describe them; return why each unfit site does not count."""
        new = [site for site in sites if self._get_client(site) not in self.data.known_sizes]
        if not new:
            return {}
        needed_new = max(needed - (len(sites) - len(new)), 0)
        descriptions, reasons = describe_sites(self.channel, new, self.settings, needed_new)
        for site, own in descriptions.items():
            try:
                reject_unfit_site(site, own, self.record.terms)
                self.data.known_sizes[self._get_client(site)] = own.examples
            except UserError as error:
                reasons[site] = str(error)
        silent = [site for site in new if site not in descriptions and site not in reasons]
        return reasons | dict.fromkeys(silent, "it did not describe its data")


def describe_sites(
    channel: Channel, sites: Sequence[str], settings: FederationSection, needed: int
) -> tuple[dict[str, Description], dict[str, str]]:
    """Ask sites to describe their data.

    Once `needed` sites have answered, the others have only `federation.wait` seconds.

    Returns:
        The descriptions by site; and by site, why it cannot take part.
    """
    descriptions, reasons, deadline = {}, {}, Deadline(settings.deadline)
    if not needed:
        deadline.shorten(settings.wait)
    for answer in channel.ask("describe", {}, {}, list(sites), deadline):
        if "refused" in answer.words:
            reasons[answer.site] = f"it reports: {str(answer.words['refused'])[:500]}"
            continue
        try:
            descriptions[answer.site] = read_section(Description, answer.words, f"the description by {answer.site}")
        except UserError as error:
            reasons[answer.site] = str(error)[:500]
        if len(descriptions) >= needed:
            deadline.shorten(settings.wait)
    return descriptions, reasons


@final
class _CollectedReports:
    """The good reports of one round."""

    def __init__(self, runner: ClientRunner, like: Vector, cohort: np.ndarray, expected: ExpectedReply) -> None:
        self.expected = expected
        self.steps = dict(zip(cohort.tolist(), runner.count_steps(cohort).tolist(), strict=True))
        self.weights = dict(zip(cohort.tolist(), runner.compute_weights(cohort).tolist(), strict=True))
        self.mean: ExactMean[Any] = runner.make_mean(like, len(cohort))
        self.facts: dict[int, tuple[float, float, float]] = {}
        self.bytes = 0
        self.seconds = 0.0  # local work of the slowest site

    @property
    def clients(self) -> list[int]:
        return sorted(self.facts)

    def add(self, client: int, answer: SiteAnswer) -> None:
        if client in self.facts:
            raise BadReply("it answered twice")
        reply = check_reply(answer.words, answer.arrays, self.expected, self.steps[client])
        try:
            self.mean.add(client, reply.report, self.weights[client])
        except OutOfRange as error:
            raise BadReply(str(error)) from None
        self.facts[client] = (reply.steps, reply.loss, 0.0)
        self.bytes += count_bytes(answer.arrays)
        self.seconds = max(self.seconds, reply.seconds)

    def make_result(self) -> RoundResult:
        clients = np.array(self.clients)
        weights = np.array([self.weights[client] for client in self.clients])
        return summarise_round(self.mean, weights, np.array([self.facts[client] for client in self.clients]), clients)
