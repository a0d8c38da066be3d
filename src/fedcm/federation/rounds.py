"""A round over real sites: whoever answers well and in time is in the mean, and the others are named.

The mean is over those who answered, and `Round.cohort` says how many they were. Answers are added as they come; sums
are exact, so their order leaves no trace.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

from fedcm.aggregate import ExactMean, OutOfRange
from fedcm.algorithm import Round, Vector, messages
from fedcm.evaluate import Score
from fedcm.executors.executor import RoundResult, Stopped
from fedcm.executors.local import empty_round, evaluated, summed_up
from fedcm.executors.runner import ClientRunner
from fedcm.experiment import Federation
from fedcm.federation.channel import Answer, Channel, Deadline
from fedcm.federation.health import Health
from fedcm.federation.links import packed_broadcast, size_in_bytes
from fedcm.federation.remote_data import RemoteData
from fedcm.federation.replies import BadReply, Expected, check
from fedcm.federation.site_states import NEVER
from fedcm.federation.terms import Description, Terms, refuse_stranger
from fedcm.refusal import Refused
from fedcm.settings import read_section

Say = Callable[[str], None]


class NoQuorum(Stopped):
    """Too few sites have answered for too long."""


@final
@dataclass
class FederationExecutor:
    runner: ClientRunner
    data: RemoteData
    channel: Channel
    sites: list[str]  # by client
    settings: Federation
    run: str  # the run's identity, which sites know it by
    terms: Terms
    counted: dict[str, int]  # the last round of each site that counted and is on the disk
    say: Say
    health: Health = field(init=False)
    without_quorum: int = 0  # rounds in a row

    def __post_init__(self) -> None:
        self.health = Health(self.settings.drop_after, self.settings.retry_after, self.say)

    def run_round(self, sent: Any, cohort: np.ndarray, round: Round) -> RoundResult:
        if not len(cohort):
            return empty_round(cohort)
        drawn = [self.sites[client] for client in cohort.tolist()]
        asked = self.health.worth_asking(drawn, round.index) or drawn
        there = self.channel.reachable()
        why = {site: "it is not connected" for site in asked if site not in there}
        why |= self._introduce([site for site in asked if site in there], round.index)
        arrays = packed_broadcast(sent, self.settings)
        gathering = _Gathering(self.runner, sent.params, cohort, self._expected(sent, round))
        willing = [site for site in asked if site not in why]
        needed = max(int(np.ceil(self.settings.quorum * len(asked))), 1)
        if len(willing) >= needed:
            words = {"run": self.run, "round": round.index, "terms": self.terms.model_dump()}
            words["counted"] = {site: self.counted.get(site, NEVER) for site in willing}
            deadline = Deadline(self.settings.deadline)
            for answer in self.channel.ask("train", words, arrays, willing, deadline):
                try:
                    gathering.add(self._client(answer.site), answer)
                except BadReply as fault:
                    why[answer.site] = str(fault)
                if len(gathering.clients) >= needed:
                    deadline.at_most(self.settings.wait)
        answered = {self.sites[client] for client in gathering.clients}
        for site in asked:
            if site in answered:
                self.health.answered(site)
            else:
                self.say(f"round {round.index}: {site} does not count, {why.get(site, 'it did not answer in time')}")
                self.health.missed(site, round.index)
        told = {"asked": len(asked), "bytes_down": len(willing) * size_in_bytes(arrays)}
        told |= {"bytes_up": gathering.bytes, "missed": sorted(set(asked) - answered)}
        told |= {"local_seconds": gathering.seconds}
        return self._result(gathering, needed, len(asked), round, told)

    def _result(
        self, gathering: "_Gathering", needed: int, asked: int, round: Round, told: Mapping[str, Any]
    ) -> RoundResult:
        if len(gathering.clients) < needed:
            self.without_quorum += 1
            self.say(f"round {round.index} changes nothing: {len(gathering.clients)} of {asked} sites, {needed} needed")
            if self.without_quorum >= self.settings.give_up_after:
                raise NoQuorum(f"{self.without_quorum} rounds in a row had fewer answers than the quorum of {needed}")
            return empty_round(np.array([], dtype=np.int64))._replace(told=told)
        self.without_quorum = 0
        result = gathering.result()
        # on the disk before it is told to the sites: the next round begins when this one is saved
        self.counted |= {self.sites[client]: round.index for client in gathering.clients}
        return result._replace(told=told)

    def evaluate(self, params: Vector) -> Score | None:
        return evaluated(self.runner, params)

    def _client(self, site: str) -> int:
        return self.sites.index(site)

    def _expected(self, sent: Any, round: Round) -> Expected:
        kind, params = messages(type(self.runner.algorithm)).reported, sent.params
        link, bound = self.settings.uplink, self.settings.norm_bound
        return Expected(self.run, round.index, kind, params.numel(), params.dtype, link, bound)

    def _introduce(self, sites: Sequence[str], round: int) -> dict[str, str]:
        """Those that have not described themselves are asked to; gives who cannot take part, and why."""
        new = [site for site in sites if self._client(site) not in self.data.known_sizes]
        if not new:
            return {}
        found, why = introduced(self.channel, new, Deadline(self.settings.deadline))
        for site, own in found.items():
            try:
                refuse_stranger(site, own, self.terms)
                self.data.known_sizes[self._client(site)] = own.examples
            except Refused as refusal:
                why[site] = str(refusal)
        return why | {site: "it did not describe its data" for site in new if site not in found and site not in why}


def introduced(
    channel: Channel, sites: Iterable[str], deadline: Deadline
) -> tuple[dict[str, Description], dict[str, str]]:
    """What sites say of their data, and of those that cannot take part, why."""
    found, why = {}, {}
    for answer in channel.ask("describe", {}, {}, list(sites), deadline):
        if "refused" in answer.words:
            why[answer.site] = f"it refused: {str(answer.words['refused'])[:500]}"
            continue
        try:
            found[answer.site] = read_section(Description, answer.words, f"what {answer.site} says of its data")
        except Refused as refusal:
            why[answer.site] = str(refusal)
    return found, why


@final
class _Gathering:
    """The good answers of one round."""

    def __init__(self, runner: ClientRunner, like: Vector, cohort: np.ndarray, expected: Expected) -> None:
        self.expected = expected
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
        good = check(answer.words, answer.arrays, self.expected)
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
        return summed_up(self.mean, weights, np.array([self.facts[client] for client in self.clients]), clients)
