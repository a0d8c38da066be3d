"""A training that leaves nothing on the disk: what `fedcm.train` and `fedcm.rounds` share."""

import copy
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self, final

from torch import nn

from fedcm.api.arguments import to_count
from fedcm.api.experiments import TrainingSettings, make_experiment
from fedcm.api.state import RunState
from fedcm.core.algorithm import Algorithm
from fedcm.core.executor import Executor
from fedcm.core.privacy.budget import Privacy
from fedcm.core.round_loop import FinishedRound, run_rounds
from fedcm.core.stopping import BestRound
from fedcm.data.dataset import ClientsOnDemand
from fedcm.errors import UserError
from fedcm.executors.client_states import ClientStates, ClientStatesInMemory
from fedcm.executors.local import LocalExecutor
from fedcm.executors.process_group import reject_second_group
from fedcm.runs.folder import RunFolder
from fedcm.runs.workers.connection import Workers, limit_workers
from fedcm.system.callbacks import StopRequested
from fedcm.system.formatting import describe_value


class BestModel(NamedTuple):
    """The model of the best round."""

    round: int
    model: nn.Module


def _reject_without_folder(privacy: Privacy, *, is_resumed: bool) -> None:
    """Raise UserError if a private training needs a run's folder, which remembers its key and its noise."""
    if privacy.secret:
        raise UserError("a secret key must be stored in the folder of a run, so secret=True needs fedcm.run")
    if is_resumed and privacy.noise_multiplier is None:
        raise UserError(
            "a training that continues another one must have its noise, so privacy must have noise_multiplier; "
            "fedcm.run and fedcm.resume remember it"
        )


@final
class InMemoryTraining:
    """A training in memory. Its arguments are checked at once; `with` starts the workers.

    Attributes:
        setup: The objects that train.
        server: The algorithm's server state after the last finished round.
        next_round: The next round to run.
        finished: The last finished round.
        client_results: The results of each client in the last evaluation.
        stop_requested: Called before every client; the training stops when it returns True.
    """

    def __init__(
        self,
        model: nn.Module,
        clients: Sequence[Any] | ClientsOnDemand,
        algorithm: Algorithm[Any, Any, Any, Any],
        rounds: int,
        settings: TrainingSettings,
        workers: int,
        resume_from: RunState | None,
    ) -> None:
        if resume_from is not None and not isinstance(resume_from, RunState):
            given = describe_value(resume_from)
            raise UserError(f"resume_from must be a RunState, such as the state of a TrainingResult, got {given}")
        self._workers = to_count("workers", workers)
        if self._workers > 1:
            reject_second_group()
        if resume_from is not None:
            resume_from._check_next_round()
        self.next_round = int(resume_from.next_round) if resume_from is not None else 0
        privacy = settings.get("privacy")
        if isinstance(privacy, Privacy):
            _reject_without_folder(privacy, is_resumed=resume_from is not None)
        experiment = make_experiment(model, clients, algorithm, rounds=rounds, name="train", **settings)
        self.setup = experiment.model_copy(update={"rounds": self.next_round + experiment.rounds}).build()
        self._workers = limit_workers(self._workers, self.setup.plan, self.setup.experiment.engine.device)
        self.server = self.setup.init_server()
        if resume_from is not None:
            self.server = resume_from._restore_server(self.setup, self.server)
            resume_from._check_clients(self.setup.plan.population)
        self.finished: FinishedRound | None = None
        self.stop_requested: StopRequested = lambda: False
        self.client_results: Mapping[str, Any] | None = None
        self._resume_from = resume_from
        self._watched: list[dict[str, Any]] = list(resume_from.watched) if resume_from is not None else []
        self._reject_early_end()
        self._best = BestRound(self.setup.best_by, self._watched) if self.setup.best_by is not None else None
        self._best_params = None if resume_from is None else resume_from.best_params
        self._stack = ExitStack()

    def _reject_early_end(self) -> None:
        """Raise UserError if the rule `stop` or the privacy budget has ended the training that is to continue."""
        if self.setup.plan.last_round < self.next_round:
            raise UserError(
                f"the privacy budget pays for {self.setup.plan.last_round + 1} rounds, and the training of resume_from "
                f"has done {self.next_round}; give a larger epsilon, or more noise from the start"
            )
        rule = self.setup.plan.stop
        if rule is not None and (end := rule.find(self._watched)) is not None:
            raise UserError(
                f"by this stop, the training of resume_from has ended already, after round {end.round}: {end.reason}; "
                "give another stop, or none"
            )

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            if self._workers > 1:
                self._start_workers(stack)
            else:
                self.states: ClientStates = ClientStatesInMemory(self.setup.runner.initial_state)
                if self._resume_from is not None:
                    self._resume_from._restore_clients(self.states)
                self.executor: Executor = LocalExecutor(self.setup.runner, self.states, self.stop_requested)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def _start_workers(self, stack: ExitStack) -> None:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fedcm-train-"))) / "run"
        folder.mkdir()
        states = self.setup.open_client_states(RunFolder(folder).client_states)
        stack.callback(states.close)
        if self._resume_from is not None:
            self._resume_from._restore_clients(states)
        workers = stack.enter_context(Workers.fork(folder, self._workers, self.setup, self.stop_requested))
        self.executor = workers.make_executor(
            folder, self.setup, states, self.server, self.next_round, self.stop_requested, self._watched
        )
        self.states = states
        stack.enter_context(workers.watch())

    def run(self) -> Iterator[FinishedRound]:
        """Run the rounds and yield each one when it is finished."""
        setup, before = self.setup, tuple(self._watched)
        for finished in run_rounds(setup.algorithm, self.executor, setup.plan, self.server, self.next_round, before):
            self.server, self.next_round, self.finished = finished.server, finished.index + 1, finished
            self._watch(finished)
            if (scores := finished.metrics.client_scores) is not None:
                self.client_results = scores.to_dict(finished.index)
            yield finished

    def _watch(self, finished: FinishedRound) -> None:
        """Keep what the end of the training and its best model depend on."""
        columns = {self.setup.best_by.column} if self.setup.best_by is not None else set()
        columns |= set(self.setup.plan.watched_columns)
        if columns:
            line = finished.metrics.to_dict()
            self._watched.append({key: line[key] for key in ("round", *sorted(columns)) if key in line})
            if self._best is not None and self._best.add(line):
                self._best_params = finished.server.params.detach().clone()

    def find_best(self) -> BestModel | None:
        """Return the model with the best result on the validation data; None if there is none."""
        if self._best is None or self._best.round is None or self._best_params is None:
            return None
        params = self._best_params.to(self.server.params)
        return BestModel(self._best.round, copy.deepcopy(self.setup.problem.bind(params)))

    def capture_state(self) -> RunState:
        """Return the state after the last finished round."""
        captured = RunState._capture(self.setup, self.next_round, self.server, self.states)
        return replace(captured, watched=tuple(self._watched), best_params=self._best_params)
