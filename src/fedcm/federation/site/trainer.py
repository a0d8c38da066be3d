"""A site's training in a process of its own: it reads requests from a pipe and answers them one at a time.

open      the experiment and which client this site is       ─► nothing
describe                                                     ─► a description of its examples
train     a round, the last counted round, the broadcast     ─► its report

The first "describe" or "train" loads the site's examples and checks its limits.

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

import torch

from fedcm.config.experiment import read_experiment
from fedcm.config.schema import read_section
from fedcm.config.sections import StopSection
from fedcm.core.algorithm import Round, get_message_types
from fedcm.errors import UserError
from fedcm.federation.compression import count_array_bytes, pack_report, unpack_broadcast
from fedcm.federation.experiment import reject_simulated_conditions
from fedcm.federation.frames import REJECTED, Arrays, receive, send
from fedcm.federation.settings import load_site_data, load_site_settings, reject_forbidden
from fedcm.federation.site.data import make_single_site_data
from fedcm.federation.site.states import SiteStates
from fedcm.federation.terms import Terms, describe_data
from fedcm.federation.weights import hash_weights, use_own_weights
from fedcm.runs.build import TrainingSetup, build
from fedcm.runs.identity import read_versions
from fedcm.system.error_messages import hide_paths
from fedcm.system.memory import keep_freed_memory
from fedcm.system.processes import watch_parent
from fedcm.system.user_warnings import print_short_warnings

STATES = "state"  # folder of a site's kit with its client states


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
        engine = given.engine.model_copy(update={"device": settings.training.device})
        evaluation = given.evaluation.model_copy(update={"metrics": None})  # the server evaluates
        changes = {"engine": engine, "evaluation": evaluation, "stop": StopSection()}  # the server stops the run
        self.experiment = use_own_weights(given.model_copy(update=changes), kit, settings)
        self.data = load_site_data(kit, settings, fresh=bool(given.data.fresh))
        torch.set_num_threads(settings.training.threads)
        self._setups: dict[str, TrainingSetup] = {}

    def describe(self) -> dict[str, Any]:
        """Return the fields of a `DataDescription` of the site's examples."""
        with_sums, weights = self.experiment.federation.mean is None, hash_weights(self.experiment)
        return describe_data(self.data, read_versions(), with_sums=with_sums, weights=weights)

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
        runner, plan, problem = setup.runner, setup.plan, setup.problem
        broadcast = unpack_broadcast(get_message_types(type(runner.algorithm)).broadcast, sent, links, problem.dtype)
        for vector in broadcast:
            if vector.shape != (problem.size,):
                raise UserError(f"vectors must have {problem.size} numbers, the model's parameters, got {vector.shape}")
        states = SiteStates(self._get_state_folder(run), runner.initial_state)
        client_lr, server_lr = plan.schedule.client_lr_at(round), plan.schedule.server_lr_at(round)
        context = Round(round, client_lr, server_lr, 0, self.population, math.nan)
        client_state = states.load_state_after(counted)
        done = runner.run_client(self.client, _move(broadcast, problem.device), client_state, context)
        states.save(round, done.client_state)
        report = pack_report(done.report, links)
        fields = {"run": run, "round": round, "steps": done.steps, "loss": done.loss, "examples": self.data.train.size}
        return fields | {"seconds": time.perf_counter() - started, "bytes": count_array_bytes(report)}, report

    def _build_setup(self, terms: Terms) -> TrainingSetup:
        """Build the model and the local steps for a run's terms, once, in the same way as a simulation."""
        key = terms.model_dump_json()
        if key not in self._setups:
            data = make_single_site_data(self.data, terms, self.population)
            self._setups[key] = build(self.experiment, data=data)
        return self._setups[key]

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
            case "train":
                return self._trainer.train(**fields, sent=arrays)
            case _:
                raise UserError(f"a request must be open, describe or train, got {kind!r}")


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


def _move(message: Any, device: torch.device) -> Any:
    return type(message)(*[vector.to(device) for vector in message])


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
