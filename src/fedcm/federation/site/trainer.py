"""A site's training, in a process of its own: it reads requests from a pipe and answers them, one at a time.

open      the experiment, who this site is            ─► its examples are loaded, its limits checked
describe                                              ─► what its examples are
train     a round, what counted last, what was sent   ─► its report

python -m fedcm.federation.site.trainer KIT REQUESTS ANSWERS        (two descriptors that it inherits)
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
from fedcm.core.algorithm import Round, messages
from fedcm.errors import UserError
from fedcm.federation.compression import packed_report, size_in_bytes, unpacked_broadcast
from fedcm.federation.frames import Arrays, receive, send
from fedcm.federation.site.own_data import own_data
from fedcm.federation.site_data import load_site_data
from fedcm.federation.site_settings import load_settings, reject_forbidden
from fedcm.federation.site_states import SiteStates
from fedcm.federation.terms import Terms, described
from fedcm.runs.assembly import Assembly, assemble_on
from fedcm.runs.folder import read_versions
from fedcm.system.faults import hide_paths
from fedcm.system.memory import keep_freed_memory
from fedcm.system.notices import print_warnings_in_one_line
from fedcm.system.processes import on_exit_of

STATES = "state"


@final
class Site:
    """One site's part in one run."""

    def __init__(self, kit: Path, experiment: str, client: int, population: int) -> None:
        self.kit = kit
        self.client = client
        self.population = population
        settings = load_settings(kit)
        table = tomllib.loads(experiment)
        reject_forbidden(table, settings.limits)
        asked = read_experiment(table)
        engine = asked.engine.model_copy(update={"device": settings.training.device})
        self.experiment = asked.model_copy(update={"engine": engine})
        self.data = load_site_data(kit, settings)
        torch.set_num_threads(settings.training.threads)
        self._assembled: dict[str, Assembly] = {}

    def describe(self) -> dict[str, Any]:
        return described(self.data, read_versions(), with_sums=self.experiment.federation.mean is None)

    def train(self, run: str, round: int, counted: int, terms: dict[str, Any], sent: Arrays) -> tuple[dict, Arrays]:
        """The round's local steps and the report, from the state that counted last."""
        started, links = time.perf_counter(), self.experiment.federation
        assembly = self._on(read_section(Terms, terms))
        runner, plan, problem = assembly.runner, assembly.plan, assembly.problem
        broadcast = unpacked_broadcast(messages(type(runner.algorithm)).sent, sent, links, problem.dtype)
        for vector in broadcast:
            if vector.shape != (problem.size,):
                raise UserError(f"vectors must have {problem.size} numbers, the model's parameters, got {vector.shape}")
        states = SiteStates(self._folder(run), runner.algorithm.init_client(problem.initial()))
        now = Round(round, plan.schedule.client(round), plan.schedule.server_lr, 0, self.population, math.nan)
        done = runner.run(self.client, _on_device(broadcast, problem.device), states.after(counted), now)
        states.keep(round, done.kept)
        report = packed_report(done.report, links)
        words = {"run": run, "round": round, "steps": done.steps, "loss": done.loss, "examples": self.data.train.size}
        return words | {"seconds": time.perf_counter() - started, "bytes": size_in_bytes(report)}, report

    def _on(self, terms: Terms) -> Assembly:
        """The model and the steps on the terms of a run, put together once, as in a simulation."""
        key = terms.model_dump_json()
        if key not in self._assembled:
            self._assembled[key] = assemble_on(self.experiment, own_data(self.data, terms, self.population))
        return self._assembled[key]

    def _folder(self, run: str) -> Path:
        if not re.fullmatch(r"[0-9a-f]{8,64}", run):
            raise UserError(f"a run's identity must be hexadecimal digits, got {run!r}")
        return self.kit / STATES / run


@final
class Requests:
    """What this process has been asked so far, and its answers."""

    def __init__(self, kit: Path) -> None:
        self.kit = kit
        self._opening: dict[str, Any] = {}

    @cached_property
    def _site(self) -> Site:
        return Site(self.kit, **self._opening)

    def answer(self, kind: str, arrays: Arrays, words: dict[str, Any]) -> tuple[dict[str, Any], Arrays]:
        match kind:
            case "open":
                self._opening = words
                return {}, {}
            case "describe":
                return self._site.describe(), {}
            case "train":
                return self._site.train(**words, sent=arrays)
            case _:
                raise UserError(f"a site is asked to describe itself or to train, got {kind!r}")


def main(kit: Path, requests: int, answers: int) -> None:
    keep_freed_memory()
    on_exit_of(os.getppid(), lambda: os._exit(1))  # in the middle of a step too: whoever would take the answer is gone
    asked = Requests(kit)
    with os.fdopen(requests, "rb") as inlet, os.fdopen(answers, "wb") as outlet, print_warnings_in_one_line():
        while True:
            try:
                words, arrays = receive(inlet)
            except EOFError:
                return
            try:
                send(outlet, *asked.answer(words.pop("kind"), arrays, words))
            except (UserError, OSError) as refusal:
                print(refusal, file=sys.stderr, flush=True)  # the site's own log keeps the files' names
                send(outlet, {"refused": hide_paths(" ".join(str(refusal).split()))})
            except Exception as error:  # of the site's own model or data
                traceback.print_exc()
                send(outlet, {"refused": hide_paths(f"{type(error).__name__}: {' '.join(str(error).split())}")})


def _on_device(message: Any, device: torch.device) -> Any:
    return type(message)(*[vector.to(device) for vector in message])


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
