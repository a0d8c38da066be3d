"""Evaluate a model at the sites: on each site's own test data, and on the validation data that they hold back."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
import torch

from fedcm.core.algorithm import Vector
from fedcm.core.evaluation import Score, Tally, combine_tallies, evaluation_mode, tally_examples
from fedcm.core.scoring.over_clients import ClientScores
from fedcm.executors.client_runner import ClientRunner
from fedcm.federation.compression import pack
from fedcm.federation.experiment import compute_quorum
from fedcm.federation.server.channel import SiteAnswer
from fedcm.federation.server.requests import SILENT, SiteRequests
from fedcm.federation.server.score_replies import ExpectedTallies, check_score, check_tallies
from fedcm.system.callbacks import Notify


@final
@dataclass
class SiteScores:
    """Asks the sites of a run for their scores. A site that does not answer is left out of that evaluation."""

    runner: ClientRunner
    requests: SiteRequests
    notify: Notify

    def evaluate_clients(self, params: Vector, round: int) -> ClientScores:
        """Evaluate parameters on the test data of each site; without any result if the quorum has not answered."""
        how, run = self.runner.client_evaluation, self.requests.record.id
        assert how is not None
        rows: dict[int, tuple[float, float]] = {}

        def take(client: int, answer: SiteAnswer) -> None:
            rows[client] = check_score(answer.fields, run, round, how)

        if not self._ask("evaluate", params, round, self.requests.data.shares.count_tests, take):
            rows = {}
        clients = sorted(rows)
        table = np.array([rows[client] for client in clients]).reshape(-1, 2)
        return how.make_scores(np.array(clients, dtype=np.int64), table)

    def validate(self, params: Vector, round: int) -> dict[str, Score]:
        """Evaluate parameters on the validation data of all sites together; empty if the quorum has not answered."""
        data, run = self.requests.data, self.requests.record.id
        found: dict[int, list[Tally]] = {}

        def take(client: int, answer: SiteAnswer) -> None:
            examples = data.shares.count_validation(data.known_sizes[client])
            found[client] = check_tallies(answer.fields, run, round, examples, self._expected_tallies)

        if not self._ask("validate", params, round, data.shares.count_validation, take) or not found:
            return {}
        tallies = [tally for client in sorted(found) for tally in found[client]]
        return {"validation": combine_tallies(tallies, self.runner.metrics)}

    @cached_property
    def _expected_tallies(self) -> ExpectedTallies:
        """Try the metrics on blank examples: whether one is defined depends only on the form of outputs and labels."""
        problem, metrics = self.runner.problem, self.runner.metrics
        with torch.random.fork_rng(devices=[]), evaluation_mode(problem, problem.initial_params) as model:
            fractions = tally_examples(problem, model, self.requests.data.client(0), metrics).fractions
        return ExpectedTallies(metrics, tuple(one.denominator > 0 for one in fractions))

    def _ask(
        self,
        task: str,
        params: Vector,
        round: int,
        count: Callable[[int], int],
        take: Callable[[int, SiteAnswer], Any],
    ) -> bool:
        """Send the parameters to every site that has such data; return whether enough sites gave a good answer.

        Args:
            task: The kind of the request.
            params: The parameters.
            round: The round's index.
            count: Returns how many of a site's examples are evaluated.
            take: Takes the answer of a client; raises BadReply if it does not count.
        """
        requests, every = self.requests, self.requests.record.sites
        sites = requests.health.select_sites(every, round) or every
        reasons = requests.prepare(sites, compute_quorum(len(sites), requests.settings.quorum))
        known = {site: requests.data.known_sizes.get(requests.get_client(site)) for site in sites}
        sites = [site for site in sites if (size := known[site]) is None or count(size)]
        quorum = compute_quorum(len(sites), requests.settings.quorum)
        ready, good = [site for site in sites if site not in reasons], set[str]()

        def take_good(client: int, answer: SiteAnswer) -> None:
            take(client, answer)
            good.add(answer.site)

        if len(ready) >= quorum:
            arrays = {"params": pack(params, requests.settings.downlink)}
            reasons |= requests.ask(task, round, arrays, ready, quorum, take_good)
        for site in sites:
            if site not in good:
                self.notify(f"round {round}: {site} is left out of the evaluation: {reasons.get(site, SILENT)}")
        if len(good) < quorum:
            self.notify(
                f"round {round} has no results of sites: {len(good)} of {len(sites)} sites answered, {quorum} needed"
            )
        return len(good) >= quorum
