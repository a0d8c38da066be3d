"""The reports of one round under secure aggregation: the server sees masked reports and computes their sum."""

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, final

import numpy as np

from fedcm.config.sections import FederationSection
from fedcm.core.aggregation import PrivateMean
from fedcm.core.algorithm import Round
from fedcm.core.executor import RoundResult
from fedcm.errors import UserError
from fedcm.executors.client_runner import ClientRunner
from fedcm.executors.local import summarise_round
from fedcm.federation.compression import count_array_bytes
from fedcm.federation.experiment import bound_examples, compute_least_sites
from fedcm.federation.private.noisy_report import count_noisy_integers
from fedcm.federation.secure.integers import count_integers, decode_sum, unpack_integers
from fedcm.federation.secure.server_session import ServerSession
from fedcm.federation.server.channel import SiteAnswer
from fedcm.federation.server.replies import BadReply, check_round, read_seconds, reading_reply
from fedcm.federation.server.reports.disputes import (
    Complaints,
    choose_suspects,
    describe_complaints,
    read_complaint,
)
from fedcm.federation.server.requests import SILENT, SiteRequests
from fedcm.federation.trust.foreign_text import clean_text

_DISPUTABLE = ("share", "mask", "unmask")  # steps in which a site reads messages of others


@final
class SecureReports:
    """Collects which sites have trained, then the masked reports of these sites and their sum."""

    def __init__(
        self,
        runner: ClientRunner,
        sent: Any,
        cohort: np.ndarray,
        round: Round,
        run: str,
        settings: FederationSection,
        sizes: np.ndarray,
    ) -> None:
        """Expect reports of the cohort.

        Args:
            runner: Has the algorithm and the settings.
            sent: The broadcast.
            cohort: The clients of the round.
            round: The round.
            run: The run's id.
            settings: `[federation]` of the experiment.
            sizes: The number of examples that each client counts for if clients are weighed by their examples.
        """
        self._runner = runner
        self._run = run
        self._round = round.index
        self._settings = settings
        self._sizes = dict(zip(cohort.tolist(), sizes.tolist(), strict=True))
        self.steps = dict(zip(cohort.tolist(), runner.count_steps(cohort, round.index).tolist(), strict=True))
        weights = runner.compute_weights(cohort, sizes)
        self.weights = dict(zip(cohort.tolist(), weights.tolist(), strict=True))
        self.reports = runner.start_reports(sent, cohort, round)
        self.clients: list[int] = []  # the clients whose reports are in the sum, sorted
        self.answered: list[int] = []  # the clients that are in the sum or would be, if enough others were
        self.bytes = 0
        self.bytes_down = 0
        self.seconds = 0.0  # local work of the slowest site
        self._is_private = isinstance(runner.aggregation, PrivateMean)  # then sites send noisy reports and no losses
        self._trained: set[int] = set()
        self._loss = math.nan

    def add(self, client: int, answer: SiteAnswer) -> None:
        """Note that a site has trained.

        Raises:
            BadReply: If the answer does not count.
        """
        with reading_reply():
            fields = answer.fields
            check_round(fields, self._run, self._round, {"steps", "examples", "seconds"})
            if fields.get("steps") != self.steps[client]:
                raise BadReply(f"its number of local steps is not {self.steps[client]}, as its data require")
            known = getattr(self._runner.data, "known_sizes", {}).get(client)
            if known is None or fields.get("examples") != known:
                raise BadReply(f"it has {clean_text(fields.get('examples'), 40)} examples now, and described {known}")
            if answer.arrays:
                raise BadReply("it must send no vectors before they are masked")
            if self._runner.weigh_by_examples:
                self._check_weight(client)
            self._trained.add(client)
            self.seconds = max(self.seconds, read_seconds(fields.get("seconds")))

    def aggregate(self, requests: SiteRequests) -> dict[str, str]:
        """Run the steps of secure aggregation with the sites that have trained.

        If sites cannot use the keys or shares of others, all start again with fresh secrets and without the suspects;
        there are fewer sites every time.

        Returns:
            By site, why its report is not in the sum.
        """
        trained = sorted(requests.record.sites[client] for client in self._trained)
        reasons, again = dict[str, str](), True
        while again:
            left = [site for site in trained if site not in reasons]
            steps = _Steps(self, requests, self._start_session(), reasons)
            again = False
            try:
                self._add_up(steps, left)
            except _Disputed:
                again = True
            except UserError as error:  # too few sites, or false shares: the round changes nothing
                reasons |= choose_suspects(steps.complaints)
                in_time = [site for site in trained if site not in reasons]
                self.answered = sorted(map(requests.get_client, in_time))
                requests.health.notify(f"round {self._round} has no sum: {error}")
        return reasons

    def _start_session(self) -> ServerSession:
        count = count_noisy_integers if self._is_private else count_integers
        return ServerSession(compute_least_sites(self._settings), count(self._runner.templates.report))

    def _add_up(self, steps: "_Steps", sites: Sequence[str]) -> None:
        """Run all steps and keep the sum.

        Raises:
            _Disputed: If sites cannot use messages of others, so that the suspects are left out.
            UserError: If there is no sum.
        """
        session = steps.session
        steps.run("advertise", sites, {"unit": self._compute_unit()}, "advert", session.add_advert)
        steps.reasons |= dict.fromkeys(session.exclude_minority(), "it has trained another model than most sites")
        steps.run("share", session.roster, {"roster": session.list_keys()}, "shares", session.add_shares)
        sealed = {site: {"sealed": session.list_shares_for(site)} for site in session.sharers}
        steps.run("mask", session.sharers, {"own": sealed}, "masked", session.add_masked)
        survivors = sorted(session.survivors)
        steps.run("confirm", survivors, {"survivors": survivors}, "signature", session.add_signature)
        signatures = session.list_signatures()
        steps.run("unmask", signatures, {"signatures": signatures}, "revealed", session.add_revealed)
        if self._is_private:
            unpack_integers(session.remove_masks(), self.reports.sum.units)
        else:
            self._loss = decode_sum(session.remove_masks(), self.reports.sum)
        self.clients = self.answered = sorted(map(steps.requests.get_client, survivors))

    def make_result(self) -> RoundResult:
        """Return the result of the round over the reports in the sum."""
        weights = np.array([self.weights[client] for client in self.clients])
        loss = self._loss / math.fsum(weights)  # of the sum, the same for every client
        stats = np.array([(self.steps[client], loss, 0.0) for client in self.clients])
        return summarise_round(self._runner, self.reports, weights, stats, np.array(self.clients))

    def _compute_unit(self) -> int:
        """Return the number of examples whose weight is 1; 1 if sites are not weighed by their examples."""
        if not self._runner.weigh_by_examples:
            return 1
        client, size = next(iter(self._sizes.items()))
        return round(size / self.weights[client])

    def _check_weight(self, client: int) -> None:
        """Raise BadReply if the site would mask its report with a larger weight than it counts for.

        The site applies `federation.max_examples` itself. It does not know what it described at first. The server could
        tell it, but a server that chooses weights could make a sum that consists of one report.
        """
        own = int(self._runner.data.sizes(np.array([client]))[0])
        if bound_examples(own, self._settings) > self._sizes[client]:
            raise BadReply(
                f"it has {own} training examples now and had {self._sizes[client]} at first; secure aggregation cannot "
                "bound the weight of a masked report, so it counts again in a new run"
            )

    @property
    def names(self) -> dict[str, Any]:
        """The fields that every message has."""
        return {"run": self._run, "round": self._round}


class _Disputed(Exception):  # noqa: N818
    """Sites cannot use messages of others, so the steps must begin again without the suspects."""


@final
class _Steps:
    """Sends the messages of the steps and counts their bytes."""

    def __init__(
        self, reports: SecureReports, requests: SiteRequests, session: ServerSession, reasons: dict[str, str]
    ) -> None:
        """Add to `reasons` why sites are not in the sum."""
        self.reports = reports
        self.requests = requests
        self.session = session
        self.reasons = reasons
        self.complaints: Complaints = {}

    def run(
        self,
        step: str,
        sites: Collection[str],
        fields: Mapping[str, Any],
        key: str,
        add: Callable[[str, Any], None],
    ) -> None:
        """Ask sites for one step and add their answers.

        Args:
            step: The step.
            sites: The sites that completed the step before.
            fields: The fields of the message.
            key: The key of the answer; its vector if the step is "mask".
            add: Adds a site's answer; raises UserError if it is not what the step requires.

        Raises:
            _Disputed: If sites cannot use messages of others; `reasons` has the suspects. After "confirm" sites may
                have revealed shares, so that the set of sites cannot change any more.
            UserError: If too few sites can take part.
        """
        threshold, asked = self.session.threshold, sorted(sites)
        if len(asked) < threshold:
            raise UserError(f"{threshold} sites are needed to {step}, and {len(asked)} are left")
        message, done = {"step": step, **self.reports.names, **fields}, set[str]()
        self.reports.bytes_down += len(asked) * _count_bytes(message)

        def take(client: int, answer: SiteAnswer) -> None:
            self.reports.bytes += _count_bytes(answer.fields) + count_array_bytes(answer.arrays)
            with reading_reply():
                keys = {"unusable"} if step in _DISPUTABLE else set()
                keys |= set() if step == "mask" else {key}
                check_round(answer.fields, self.reports.names["run"], self.reports.names["round"], keys)
                try:
                    if "unusable" in answer.fields:
                        complaint = read_complaint(answer.site, answer.fields["unusable"], set(asked))
                        self.complaints[answer.site] = complaint
                        return
                    add(answer.site, (answer.arrays if step == "mask" else answer.fields).get(key))
                except UserError as error:
                    raise BadReply(str(error)) from None
                done.add(answer.site)

        self.reasons |= self.requests.exchange("secure", message, {}, asked, threshold, take)
        known = {*done, *self.reasons, *self.complaints}
        self.reasons |= {site: f"{SILENT} ({step})" for site in asked if site not in known}
        for sentence in describe_complaints(self.complaints):
            self.requests.health.notify(f"round {self.reports.names['round']}: {sentence}")
        if self.complaints and step != "unmask":
            self.reasons |= choose_suspects(self.complaints)
            raise _Disputed


def _count_bytes(fields: Mapping[str, Any]) -> int:
    return len(json.dumps(fields, default=str))
