"""Check and average the reports of one round as they arrive."""

from typing import Any, final

import numpy as np

from fedcm.core.algorithm import Round
from fedcm.core.exact_mean import OutOfRange
from fedcm.core.executor import RoundResult
from fedcm.executors.client_runner import ClientRunner
from fedcm.executors.local import summarise_round
from fedcm.federation.compression import count_array_bytes
from fedcm.federation.server.channel import SiteAnswer
from fedcm.federation.server.replies import BadReply, ExpectedReply, check_reply


@final
class CollectedReports:
    """The good reports of one round, and their exact mean."""

    def __init__(
        self, runner: ClientRunner, sent: Any, cohort: np.ndarray, round: Round, expected: ExpectedReply
    ) -> None:
        """Expect reports of the cohort, which gets the broadcast `sent`."""
        self.expected = expected
        self._runner = runner
        self.steps = dict(zip(cohort.tolist(), runner.count_steps(cohort, expected.round).tolist(), strict=True))
        self.weights = dict(zip(cohort.tolist(), runner.compute_weights(cohort).tolist(), strict=True))
        self.reports = runner.start_reports(sent, cohort, round)
        self.client_stats: dict[int, tuple[float, float, float]] = {}
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
        """Check an answer and add its report to the mean.

        Raises:
            BadReply: If the answer does not count.
        """
        if client in self.client_stats:
            raise BadReply("it answered twice")
        reply = check_reply(answer.fields, answer.arrays, self.expected, self.steps[client])
        try:
            self.reports.add_stack([client], reply.report, [self.weights[client]])
        except OutOfRange as error:
            raise BadReply(str(error)) from None
        self.client_stats[client] = (reply.steps, reply.loss, 0.0)
        self.bytes += count_array_bytes(answer.arrays)
        self.seconds = max(self.seconds, reply.seconds)

    def make_result(self) -> RoundResult:
        """Return the result of the round over the reports so far."""
        clients = self.clients
        weights = np.array([self.weights[client] for client in clients])
        client_stats = np.array([self.client_stats[client] for client in clients])
        return summarise_round(self._runner, self.reports, weights, client_stats, np.array(clients))
