"""A round over real sites: whoever answers well and in time is in the mean, and the others are named.

The mean is over those who answered, and `Round.cohort` says how many they were. Answers are added as they come; sums
are exact, so their order leaves no trace.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

from fedcm.config.experiment import FederationSection
from fedcm.config.schema import read_section
from fedcm.core.algorithm import Round, Vector, messages
from fedcm.core.evaluation import Score
from fedcm.core.exact_mean import ExactMean, OutOfRange
from fedcm.core.executor import RoundResult
from fedcm.errors import Stopped, UserError
from fedcm.executors.client_runner import ClientRunner
from fedcm.executors.local import empty_round, evaluate_model, summarise_round
from fedcm.federation.compression import packed_broadcast, size_in_bytes
from fedcm.federation.quorum import quorum_of
from fedcm.federation.server.channel import Answer, Channel, Deadline
from fedcm.federation.server.health import Health
from fedcm.federation.server.remote_data import RemoteData
from fedcm.federation.server.replies import BadReply, Expected, check
from fedcm.federation.site_states import NEVER
from fedcm.federation.terms import Description, Noted, reject_stranger

Say = Callable[[str], None]

_DOUBTFUL = 5.0  # seconds at least for a site that missed the last time, once the quorum has answered
_LOOK = 0.2  # seconds between two looks whether enough sites are there


class NoQuorum(Stopped):
    """Too few sites have answered for too long."""


@final
@dataclass
class FederationExecutor:
    runner: ClientRunner
    data: RemoteData
    channel: Channel
    noted: Noted  # the run's sites and terms
    settings: FederationSection
    counted: dict[str, int]  # the last round of each site that counted and is on the disk
    say: Say
    stop_requested: Callable[[], bool]
    health: Health = field(init=False)
    without_quorum: int = 0  # rounds in a row

    def __post_init__(self) -> None:
        self.health = Health(self.settings.drop_after, self.settings.retry_after, self.say)

    def run_round(self, sent: Any, cohort: np.ndarray, round: Round) -> RoundResult:
        self._reject_to_go_on()
        if not len(cohort):
            return empty_round(cohort)
        drawn = [self.noted.sites[client] for client in cohort.tolist()]
        asked = self.health.worth_asking(drawn, round.index) or drawn
        needed = quorum_of(len(asked), self.settings.quorum)
        why = self._awaited(asked, needed)
        why |= self._introduce([site for site in asked if site not in why], needed)
        willing = [site for site in asked if site not in why]
        arrays = packed_broadcast(sent, self.settings)
        gathering = _Gathering(self.runner, sent.params, cohort, self._expected(sent, round))
        if len(willing) >= needed:
            words = {"run": self.noted.id, "round": round.index, "terms": self.noted.terms.model_dump()}
            words["counted"] = {site: self.counted.get(site, NEVER) for site in willing}
            deadline = Deadline(self.settings.deadline)
            for answer in self.channel.ask("train", words, arrays, willing, deadline):
                why |= self._taken(answer, gathering)
                if len(gathering.clients) >= needed:
                    heard = {self.noted.sites[client] for client in gathering.clients} | set(why)
                    deadline.at_most(self._patience(set(willing) - heard, deadline.passed))
        answered = {self.noted.sites[client] for client in gathering.clients}
        for site in asked:
            if site in answered:
                self.health.answered(site)
            else:
                self.say(f"round {round.index}: {site} does not count, {why.get(site, 'it did not answer in time')}")
                self.health.missed(site, round.index, silent=site not in why)
        told = {"clients": gathering.clients, "asked": len(asked), "missed": sorted(set(asked) - answered)}
        told |= {"lost": self.health.lost} if self.health.lost else {}
        told |= {"bytes_down": len(willing) * size_in_bytes(arrays), "bytes_up": gathering.bytes}
        return self._result(gathering, needed, len(asked), round, told | {"local_seconds": gathering.seconds})

    def evaluate(self, params: Vector) -> Score | None:
        return evaluate_model(self.runner, params)

    def _patience(self, outstanding: set[str], passed: float) -> float:
        """Seconds for those who have not answered: for such as missed before, as long again as the others took."""
        if not self.health.doubtful(outstanding):
            return self.settings.wait
        return min(self.settings.wait, max(passed, _DOUBTFUL))

    def _taken(self, answer: Answer, gathering: "_Gathering") -> dict[str, str]:
        client = self._client(answer.site)
        try:
            gathering.add(client, answer)
            return {}
        except BadReply as fault:
            said = answer.words.get("examples")
            if isinstance(said, int) and said != self.data.known_sizes.get(client):
                self.data.known_sizes.pop(client, None)  # its data may be others now: it is asked again
            return {answer.site: str(fault)}

    def _result(
        self, gathering: "_Gathering", needed: int, asked: int, round: Round, told: Mapping[str, Any]
    ) -> RoundResult:
        if len(gathering.clients) < needed:
            self.without_quorum += 1
            self.say(f"round {round.index} changes nothing: {len(gathering.clients)} of {asked} sites, {needed} needed")
            if self.without_quorum >= self.settings.give_up_after:
                raise NoQuorum(f"{self.without_quorum} rounds in a row had fewer answers than the quorum of {needed}")
            return empty_round(np.array([], dtype=np.int64))._replace(told=dict(told) | {"clients": []})
        self.without_quorum = 0
        result = gathering.result()
        # on the disk before it is told to the sites: the next round begins when this one is saved
        self.counted |= {self.noted.sites[client]: round.index for client in gathering.clients}
        return result._replace(told=told)

    def _client(self, site: str) -> int:
        return self.noted.sites.index(site)

    def _expected(self, sent: Any, round: Round) -> Expected:
        kind, params = messages(type(self.runner.algorithm)).reported, sent.params
        link, bound = self.settings.uplink, self.settings.norm_bound
        return Expected(self.noted.id, round.index, kind, params.numel(), params.dtype, link, bound)

    def _reject_to_go_on(self) -> None:
        self.channel.reject_to_go_on()
        if self.stop_requested():
            raise Stopped("an admin asked to stop")

    def _awaited(self, asked: Sequence[str], needed: int) -> dict[str, str]:
        """Who is not there, once the quorum is, or the deadline has passed: without it a round is not begun."""
        deadline = Deadline(self.settings.deadline)
        while True:
            there = self.channel.reachable()
            absent = {site: "it is not connected" for site in asked if site not in there}
            if len(asked) - len(absent) >= needed or deadline.left <= 0:
                return absent
            self._reject_to_go_on()
            time.sleep(min(_LOOK, deadline.left))

    def _introduce(self, sites: Sequence[str], needed: int) -> dict[str, str]:
        """Those that have not described themselves are asked to, and waited for where the quorum needs them; gives who
        cannot take part, and why."""
        new = [site for site in sites if self._client(site) not in self.data.known_sizes]
        if not new:
            return {}
        found, why = introduced(self.channel, new, self.settings, max(needed - (len(sites) - len(new)), 0))
        for site, own in found.items():
            try:
                reject_stranger(site, own, self.noted.terms)
                self.data.known_sizes[self._client(site)] = own.examples
            except UserError as refusal:
                why[site] = str(refusal)
        return why | {site: "it did not describe its data" for site in new if site not in found and site not in why}


def introduced(
    channel: Channel, sites: Sequence[str], settings: FederationSection, needed: int
) -> tuple[dict[str, Description], dict[str, str]]:
    """What sites say of their data, and of those that cannot take part, why; with so many the others are not waited
    for longer than in a round."""
    found, why, deadline = {}, {}, Deadline(settings.deadline)
    if not needed:
        deadline.at_most(settings.wait)
    for answer in channel.ask("describe", {}, {}, list(sites), deadline):
        if "refused" in answer.words:
            why[answer.site] = f"it refused: {str(answer.words['refused'])[:500]}"
            continue
        try:
            found[answer.site] = read_section(Description, answer.words, f"what {answer.site} says of its data")
        except UserError as refusal:
            why[answer.site] = str(refusal)[:500]
        if len(found) >= needed:
            deadline.at_most(settings.wait)
    return found, why


@final
class _Gathering:
    """The good answers of one round."""

    def __init__(self, runner: ClientRunner, like: Vector, cohort: np.ndarray, expected: Expected) -> None:
        self.expected = expected
        self.steps = dict(zip(cohort.tolist(), runner.steps(cohort).tolist(), strict=True))
        self.weights = dict(zip(cohort.tolist(), runner.weights(cohort).tolist(), strict=True))
        self.mean: ExactMean[Any] = runner.mean(like, len(cohort))
        self.facts: dict[int, tuple[float, float, float]] = {}
        self.bytes = 0
        self.seconds = 0.0  # of the slowest site's own work

    @property
    def clients(self) -> list[int]:
        return sorted(self.facts)

    def add(self, client: int, answer: Answer) -> None:
        if client in self.facts:
            raise BadReply("it answered twice")
        good = check(answer.words, answer.arrays, self.expected, self.steps[client])
        try:
            self.mean.add(client, good.report, self.weights[client])
        except OutOfRange as error:
            raise BadReply(str(error)) from None
        self.facts[client] = (good.steps, good.loss, 0.0)
        self.bytes += size_in_bytes(answer.arrays)
        self.seconds = max(self.seconds, good.seconds)

    def result(self) -> RoundResult:
        clients = np.array(self.clients)
        weights = np.array([self.weights[client] for client in self.clients])
        return summarise_round(self.mean, weights, np.array([self.facts[client] for client in self.clients]), clients)
