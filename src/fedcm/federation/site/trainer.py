"""A site's training in a process of its own: it reads requests from a pipe and answers them one at a time.

open      the experiment and which client this site is       ─► nothing
describe                                                     ─► a description of its examples
offer     rounds of a run                                    ─► those after which it has a client state
train     a round, the last counted round, the broadcast     ─► its report; with secure aggregation, that it has one
secure    a step of secure aggregation                       ─► its answer, as in fedcm.federation.secure
evaluate  the same with the new parameters                   ─► its score on its own test data
validate  the same                                           ─► sums over its validation data
finish    runs that have finished                            ─► nothing

The first request after "open" loads the site's examples and checks its limits.

python -m fedcm.federation.site.trainer KIT REQUESTS ANSWERS        (two inherited file descriptors)
"""

import math
import os
import re
import sys
import time
import tomllib
import traceback
from functools import cached_property
from pathlib import Path
from typing import Any, final

import numpy as np
import torch

from fedcm.config.experiment import read_experiment
from fedcm.config.schema import read_section
from fedcm.core.aggregation import PrivateMean
from fedcm.core.algorithm import Round, Vector, get_message_types
from fedcm.errors import UserError
from fedcm.federation.compression import count_array_bytes, pack_report, unpack, unpack_broadcast
from fedcm.federation.experiment import bound_examples, compute_least_sites, reject_simulated_conditions
from fedcm.federation.frames import REJECTED, Arrays, receive, send
from fedcm.federation.kit import SITE_FILE, STATES
from fedcm.federation.private.noisy_report import NoisyReport
from fedcm.federation.private.rules import count_colluding, reject_leaks
from fedcm.federation.secure.revealed_sums import RevealedSums
from fedcm.federation.settings import (
    load_site_data,
    load_site_settings,
    reject_forbidden,
    reject_open_reports,
    reject_weak_privacy,
)
from fedcm.federation.shares import SiteShares
from fedcm.federation.site.data import make_single_site_data
from fedcm.federation.site.experiment import adapt_experiment
from fedcm.federation.site.finished_runs import mark_finished, unmark
from fedcm.federation.site.scores import score_on_tests, tally_validation
from fedcm.federation.site.secure_rounds import SecureRounds
from fedcm.federation.site.state_cipher import open_cipher
from fedcm.federation.site.states import SiteStates
from fedcm.federation.terms import Terms, describe_data
from fedcm.federation.weights import hash_weights, use_own_weights
from fedcm.runs.build import TrainingSetup, build
from fedcm.runs.identity import read_versions
from fedcm.system.error_messages import hide_paths
from fedcm.system.memory import keep_freed_memory
from fedcm.system.processes import watch_parent
from fedcm.system.user_warnings import print_short_warnings


@final
class SiteTrainer:
    """One site's part in one run."""

    def __init__(self, kit: Path, experiment: str, client: int, population: int) -> None:
        """Load the site's examples.

        Args:
            kit: The site's kit.
            experiment: The experiment's TOML.
            client: The site's index among the run's sites.
            population: The number of sites.

        Raises:
            UserError: If the site's limits do not allow the experiment, or its data cannot be loaded.
        """
        self.kit = kit
        self.client = client
        self.population = population
        settings = load_site_settings(kit)
        table = tomllib.loads(experiment)
        reject_forbidden(table, settings.limits)
        given = read_experiment(table)
        reject_simulated_conditions(given)
        reject_open_reports(given.federation, settings.limits)
        reject_leaks(given, compute_least_sites(given.federation))
        reject_weak_privacy(given, settings.limits)
        self.secure = SecureRounds(kit, client, experiment, given.federation)
        self.limits = settings.limits
        self.storage = settings.storage
        self.cipher = open_cipher(kit, settings.storage)
        self.data = load_site_data(kit, settings, fresh=bool(given.data.fresh))
        self.parts = SiteShares.of(given).draw(self.data.train.size, given.seed, client)
        self.experiment = use_own_weights(adapt_experiment(given, settings.training.device, self.parts), kit, settings)
        torch.set_num_threads(settings.training.threads)
        self._setups: dict[str, TrainingSetup] = {}

    def describe(self) -> dict[str, Any]:
        """Return the fields of a `DataDescription` of the site's examples."""
        with_sums, weights = self.experiment.federation.mean is None, hash_weights(self.experiment)
        with_sums = with_sums and not self.experiment.privacy.is_on  # they would have no noise
        return describe_data(self.data, read_versions(), with_sums=with_sums, weights=weights)

    def offer(self, run: str, rounds: list[int]) -> dict[str, Any]:
        """Return the rounds after which this site has a client state: those of `rounds`, and its first and last."""
        own = self._open_states(run, None).list_rounds()
        return {"run": run, "states": sorted({*own[:1], *own[-1:], *(set(own) & set(rounds))})}

    def train(self, run: str, round: int, counted: int, terms: dict[str, Any], sent: Arrays) -> tuple[dict, Arrays]:
        """Do the local steps of a round from the state that counted last, and return the reply.

        Args:
            run: The run's id.
            round: The round's index.
            counted: The site's round that counted last.
            terms: The fields of the run's `Terms`.
            sent: The packed broadcast.
        """
        started, links = time.perf_counter(), self.experiment.federation
        setup = self._build_setup(read_section(Terms, terms))
        if self.experiment.privacy.is_on and not 0 <= round <= setup.plan.last_round:
            raise UserError(f"a private run has the rounds 0 to {setup.plan.last_round}, got {round}")
        runner, problem = setup.runner, setup.problem
        broadcast = unpack_broadcast(get_message_types(type(runner.algorithm)).broadcast, sent, links, problem.dtype)
        for vector in broadcast:
            _check_vector(vector, problem.size)
        states = self._open_states(run, runner.initial_state)
        unmark(states.folder)
        client_state = states.load_state_after(counted)
        context = self._make_round(setup, round)
        done = runner.run_client(self.client, _move(broadcast, problem.device), client_state, context)
        states.save(round, done.client_state)
        fields = {"run": run, "round": round, "steps": done.steps, "examples": self.data.train.size}
        if links.secure_aggregation:
            examples = bound_examples(self._count_own_examples(setup), links) if runner.weigh_by_examples else None
            sums, noisy = RevealedSums(self._get_state_folder(run)), None
            if self.experiment.privacy.is_on:
                noisy = self._make_noisy_report(setup, run, broadcast, done.report, context)
            self.secure.keep(run, round, terms, sent, done.report, done.loss, examples=examples, sums=sums, noisy=noisy)
            return fields | {"seconds": time.perf_counter() - started}, {}
        report = pack_report(done.report, links)
        fields |= {} if self.experiment.privacy.is_on else {"loss": done.loss}
        return fields | {"seconds": time.perf_counter() - started, "bytes": count_array_bytes(report)}, report

    def aggregate(self, **fields: Any) -> tuple[dict, Arrays]:
        """Answer one step of secure aggregation; see `SecureRounds`."""
        if not self.experiment.federation.secure_aggregation:
            raise UserError("this run has no secure aggregation")
        return self.secure.answer(**fields)

    def evaluate(self, run: str, round: int, counted: int, terms: dict[str, Any], sent: Arrays) -> tuple[dict, Arrays]:
        """Score parameters on the site's own test data; the arguments are those of `train`."""
        started, setup = time.perf_counter(), self._prepare_evaluation(terms)
        params, states = self._read_params(setup, sent), self._open_states(run, setup.runner.initial_state)
        context = self._make_round(setup, round)
        scores = score_on_tests(setup.runner, params, self.client, context, states, counted)
        return {"run": run, "round": round, **scores, "seconds": time.perf_counter() - started}, {}

    def validate(self, run: str, round: int, counted: int, terms: dict[str, Any], sent: Arrays) -> tuple[dict, Arrays]:
        """Return sums over the site's validation data; the arguments are those of `train`."""
        started, setup = time.perf_counter(), self._prepare_evaluation(terms)
        tallies = tally_validation(setup.runner, self._read_params(setup, sent))
        return {"run": run, "round": round, "tallies": tallies, "seconds": time.perf_counter() - started}, {}

    def _make_noisy_report(
        self, setup: TrainingSetup, run: str, broadcast: Any, report: Any, round: Round
    ) -> NoisyReport:
        mean, links = setup.runner.aggregation, self.experiment.federation
        assert isinstance(mean, PrivateMean)
        shares = compute_least_sites(links) - count_colluding(links)
        sent = _move(broadcast, setup.problem.device)
        return NoisyReport(mean, sent, report, round, shares, self.population, self._get_state_folder(run))

    def _prepare_evaluation(self, terms: dict[str, Any]) -> TrainingSetup:
        if self.experiment.privacy.is_on:
            raise UserError(
                "this site gives no scores of models on its data in a private run, because they have no noise"
            )
        if not self.limits.scores:
            raise UserError(f"this site gives no scores of models on its data (limits.scores in {SITE_FILE})")
        return self._build_setup(read_section(Terms, terms))

    def _read_params(self, setup: TrainingSetup, sent: Arrays) -> Vector:
        problem = setup.problem
        params = unpack(sent["params"], self.experiment.federation.downlink, problem.dtype)
        _check_vector(params, problem.size)
        return params.to(problem.device)

    def _make_round(self, setup: TrainingSetup, index: int) -> Round:
        schedule = setup.plan.schedule
        client_lr, server_lr = schedule.client_lr_at(index), schedule.server_lr_at(index)
        return Round(index, client_lr, server_lr, 0, self.population, math.nan)

    def _build_setup(self, terms: Terms) -> TrainingSetup:
        """Build the model and the local steps for a run's terms, once, in the same way as a simulation."""
        key = terms.model_dump_json()
        if key not in self._setups:
            data = make_single_site_data(self.data, terms, self.population, self.parts)
            self._setups[key] = build(self.experiment, data=data)
        return self._setups[key]

    def _count_own_examples(self, setup: TrainingSetup) -> int:
        return int(setup.runner.data.sizes(np.array([self.client]))[0])

    def _open_states(self, run: str, initial: Any) -> SiteStates:
        return SiteStates(self._get_state_folder(run), initial, self.storage, self.client, self.cipher)

    def _get_state_folder(self, run: str) -> Path:
        if not re.fullmatch(r"[0-9a-f]{8,64}", run):
            raise UserError(f"a run's id must be hexadecimal digits, got {run!r}")
        return self.kit / STATES / run


@final
class _RequestHandler:
    """Answers requests; the trainer is made by the first request that needs it."""

    def __init__(self, kit: Path) -> None:
        self.kit = kit
        self._open_fields: dict[str, Any] = {}

    @cached_property
    def _trainer(self) -> SiteTrainer:
        return SiteTrainer(self.kit, **self._open_fields)

    def answer(self, kind: str, arrays: Arrays, fields: dict[str, Any]) -> tuple[dict[str, Any], Arrays]:
        match kind:
            case "open":
                self._open_fields = fields
                return {}, {}
            case "describe":
                return self._trainer.describe(), {}
            case "offer":
                return self._trainer.offer(**fields), {}
            case "train":
                return self._trainer.train(**fields, sent=arrays)
            case "secure":
                return self._trainer.aggregate(**fields, arrays=arrays)
            case "evaluate":
                return self._trainer.evaluate(**fields, sent=arrays)
            case "validate":
                return self._trainer.validate(**fields, sent=arrays)
            case "finish":
                mark_finished(self.kit / STATES, fields["runs"])
                return {}, {}
            case _:
                known = "open, describe, offer, train, secure, evaluate, validate or finish"
                raise UserError(f"a request must be {known}, got {kind!r}")


def main(kit: Path, requests: int, answers: int) -> None:
    """Answer requests until the pipe is closed; `requests` and `answers` are file descriptors."""
    keep_freed_memory()
    watch_parent(os.getppid(), lambda: os._exit(1))  # even during a step, because nobody would take the answer
    handler = _RequestHandler(kit)
    with os.fdopen(requests, "rb") as inlet, os.fdopen(answers, "wb") as outlet, print_short_warnings():
        while True:
            try:
                fields, arrays = receive(inlet)
            except EOFError:
                return
            try:
                send(outlet, *handler.answer(fields.pop("kind"), arrays, fields))
            except (UserError, OSError) as error:
                print(error, file=sys.stderr, flush=True)  # only the site's own log contains file names
                send(outlet, {REJECTED: hide_paths(" ".join(str(error).split()))})
            except Exception as error:  # of the site's own model or data
                traceback.print_exc()
                send(outlet, {REJECTED: hide_paths(f"{type(error).__name__}: {' '.join(str(error).split())}")})


def _check_vector(vector: torch.Tensor, size: int) -> None:
    if vector.shape != (size,):
        raise UserError(f"vectors must have {size} numbers, the model's parameters, got {vector.shape}")


def _move(message: Any, device: torch.device) -> Any:
    return type(message)(*[vector.to(device) for vector in message])


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
