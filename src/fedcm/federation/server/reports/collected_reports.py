"""Check the reports of one round as they arrive, compare them with each other and average those that count."""

from typing import Any, final

import numpy as np

from fedcm.core.algorithm import Round
from fedcm.core.exact_mean import OutOfRange
from fedcm.core.executor import RoundResult
from fedcm.executors.client_runner import ClientRunner
from fedcm.executors.local import summarise_round
from fedcm.federation.compression import count_array_bytes
from fedcm.federation.server.channel import SiteAnswer
from fedcm.federation.server.replies import BadReply, CheckedReply, ExpectedReply, check_reply
from fedcm.federation.server.reports.screening import (
    Influence,
    ScreeningRules,
    find_opposed_reports,
    measure_cosines,
    measure_influence,
    shorten_large_reports,
)


@final
class CollectedReports:
    """The good reports of one round, and their mean.

    With rules, reports are held until all have arrived, because only then can they be compared. Without any, each is
    added to the mean when it arrives.
    """

    def __init__(
        self,
        runner: ClientRunner,
        sent: Any,
        cohort: np.ndarray,
        round: Round,
        expected: ExpectedReply,
        weights: np.ndarray,
        rules: ScreeningRules,
    ) -> None:
        """Expect reports of the cohort, which gets the broadcast `sent`.

        Args:
            runner: Has the algorithm and the settings.
            sent: The broadcast.
            cohort: The clients of the round.
            round: The round.
            expected: What every good reply has in common.
            weights: The weight of each client in the mean.
            rules: When a report does not count beside the others.
        """
        self.expected = expected
        self._runner = runner
        self._rules = rules
        self._guess = runner.algorithm.expected_report(sent)
        self._held: dict[int, Any] = {}
        self.steps = dict(zip(cohort.tolist(), runner.count_steps(cohort, expected.round).tolist(), strict=True))
        self.weights = dict(zip(cohort.tolist(), weights.tolist(), strict=True))
        self.reports = runner.start_reports(sent, cohort, round)
        self.client_stats: dict[int, tuple[float, float, float]] = {}
        self.influence: dict[int, Influence] = {}
        self.shortened: dict[int, str] = {}  # by client, why its report counts at the median distance
        self.bytes = 0
        self.seconds = 0.0  # local work of the slowest site

    @property
    def clients(self) -> list[int]:
        """The clients whose reports count, sorted."""
        return sorted(self.client_stats)

    @property
    def answered(self) -> list[int]:
        """The clients that answered as requested: those whose reports count."""
        return self.clients

    def add(self, client: int, answer: SiteAnswer) -> None:
        """Check an answer and add its report to the mean, or hold it for the comparison.

        Raises:
            BadReply: If the answer does not count.
        """
        if client in self.client_stats:
            raise BadReply("it answered twice")
        reply = check_reply(answer.fields, answer.arrays, self.expected, self.steps[client])
        if self._rules.is_on:
            self._held[client] = reply.report
        else:
            self._add_report(client, reply)
        self.client_stats[client] = (reply.steps, reply.loss, 0.0)
        self.bytes += count_array_bytes(answer.arrays)
        self.seconds = max(self.seconds, reply.seconds)

    def _add_report(self, client: int, reply: CheckedReply) -> None:
        try:
            self.reports.add_stack([client], reply.report, [self.weights[client]])
        except OutOfRange as error:
            raise BadReply(str(error)) from None

    def screen(self) -> dict[int, str]:
        """Compare the reports with each other once all have arrived, and add those that count to the mean.

        `shortened` then says which of them count at the median distance.

        Returns:
            By client, why its report does not count.
        """
        cosines = measure_cosines(self._held)
        opposed = find_opposed_reports(cosines, self._rules.min_cosine)
        rest = {client: report for client, report in self._held.items() if client not in opposed}
        short = shorten_large_reports(rest, self._rules.norm_ratio, self._guess)
        self.shortened = {client: one.reason for client, one in short.items()}
        self._held |= {client: one.report for client, one in short.items()}
        self.influence = measure_influence(self._held, self.weights, cosines)
        for client in opposed:
            del self._held[client], self.client_stats[client]
        for client in sorted(self._held):  # their norms were checked, so none is out of range
            self.reports.add_stack([client], self._held[client], [self.weights[client]])
        self._held = {}
        return opposed

    def make_result(self) -> RoundResult:
        """Return the result of the round over the reports that count."""
        clients = self.clients
        weights = np.array([self.weights[client] for client in clients])
        client_stats = np.array([self.client_stats[client] for client in clients])
        return summarise_round(self._runner, self.reports, weights, client_stats, np.array(clients))
