"""Train in memory, in five lines of Python: any `nn.Module`, any list of clients, any algorithm."""

import copy
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Unpack, final

from torch import Tensor, nn

from fedcm.api.arguments import AnyPath
from fedcm.api.experiments import TrainingSettings, Work
from fedcm.api.in_memory import InMemoryTraining
from fedcm.api.progress import say, show_progress
from fedcm.api.state import RunState
from fedcm.core.aggregation.robust import RobustRule
from fedcm.core.algorithm import Algorithm
from fedcm.core.attacks import Attack
from fedcm.core.conditions.availability import Availability
from fedcm.core.local.optimizers import LocalOptimizer
from fedcm.core.losses import Loss
from fedcm.core.metrics import Metrics, describe_score
from fedcm.core.participation import Participation
from fedcm.core.privacy.budget import Privacy
from fedcm.core.round_loop import FinishedRound
from fedcm.core.schedule_kinds import FactorFunction, RateSchedule
from fedcm.core.stopping import Stop
from fedcm.core.topology import Topology
from fedcm.data.dataset import ClientsOnDemand
from fedcm.data.structures.collate import UserCollate
from fedcm.data.work.stragglers import Stragglers
from fedcm.errors import Stopped, UserError
from fedcm.executors.client_runner import PERSONAL
from fedcm.models.trainable import load_personal
from fedcm.runs.timing import describe_reading
from fedcm.system.signals import StopSignals


@final
@dataclass(frozen=True)
class TrainingResult:
    """The result of a training. It unpacks into `model, history`.

    Attributes:
        model: A copy of the given model, with the trained parameters.
        history: One dict per round: loss, cohort, steps, norms, bytes; test_accuracy in evaluated rounds.
        state: The state after the last round; `resume_from` continues from it.
        stopped: Whether Ctrl-C ended the training early.
        stopped_early: Whether the rule `stop` or the privacy budget ended the training.
        client_results: The results of each client in the last evaluation, if `client_tests` is given.
        best_round: The round with the best result on the validation data; None without such data.
    """

    model: nn.Module
    history: list[Metrics]
    state: RunState
    stopped: bool = False
    stopped_early: bool = False
    best_round: int | None = None
    client_results: Mapping[str, Any] | None = None
    _best_model: nn.Module | None = field(default=None, repr=False)
    _personal_names: tuple[str, ...] = field(default=(), repr=False)

    def client_model(self, client: int) -> nn.Module:
        """Return a copy of the model with the personal parameters of one client.

        Raises:
            UserError: If the model has no personal parameters, or the client has not taken part.
        """
        if not self._personal_names:
            raise UserError("all clients share one model, because personal is not given; use the model of the result")
        if client not in self.state.clients:
            raise UserError(f"client {client} has no personal parameters yet, because it has not taken part")
        model = copy.deepcopy(self.model)
        load_personal(model, self._personal_names, self.state.clients[client][PERSONAL])
        return model

    @property
    def best_model(self) -> nn.Module:
        """The model after `best_round`.

        Raises:
            UserError: If there were no validation data, or no evaluation.
        """
        if self._best_model is None:
            raise UserError(
                "there is a best model only if validation data were evaluated; give validation=0.1, for example"
            )
        return self._best_model

    def __iter__(self) -> Iterator[Any]:
        return iter((self.model, self.history))


@final
class TrainingRound:
    """One finished round of `fedcm.rounds`.

    Attributes:
        index: The number of the round, from 0.
        metrics: The metrics of the round, as a dict.
    """

    def __init__(self, finished: FinishedRound, training: "InMemoryTraining") -> None:
        self.index = finished.index
        self.metrics = finished.metrics.to_dict()
        self._finished = finished
        self._training = training
        self._state: RunState | None = None

    def model(self) -> nn.Module:
        """Return a copy of the model with the parameters after this round."""
        return copy.deepcopy(self._training.setup.problem.bind_initial_personal(self._finished.server.params))

    def state(self) -> RunState:
        """Return the state after this round, for `resume_from`.

        Raises:
            UserError: If a later round has begun.
        """
        if self._state is not None:
            return self._state
        if self._training.finished is not self._finished:
            raise UserError(f"the state of round {self.index} is gone, because a later round began; ask for it earlier")
        return self._training.capture_state()

    def _keep_state(self) -> None:
        """Keep the state of the last round, because the loop has ended and its workers with it."""
        if self._training.finished is self._finished:
            self._state = self._training.capture_state()

    def __repr__(self) -> str:
        loss, score = self.metrics["loss"], describe_score(self.metrics)
        words = [f"round {self.index}", "empty" if loss is None else f"loss {loss:.4g}"]
        words += [] if score is None else [score]
        return f"<TrainingRound: {', '.join(words)}>"


def train(
    model: nn.Module,
    clients: Sequence[Any] | ClientsOnDemand,
    algorithm: Algorithm[Any, Any, Any, Any],
    *,
    rounds: int,
    test: Any | None = None,
    validation: Any | None = None,
    participation: float | int | Participation = 1.0,
    topology: Topology | None = None,
    availability: Availability | None = None,
    stragglers: Stragglers | None = None,
    epochs: Work | None = None,
    steps: Work | None = None,
    batch_size: int = 50,
    lr: float = 0.1,
    lr_decay: float = 1.0,
    lr_schedule: RateSchedule | FactorFunction | None = None,
    step_schedule: RateSchedule | FactorFunction | None = None,
    optimizer: LocalOptimizer | None = None,
    server_lr: float = 1.0,
    server_lr_schedule: RateSchedule | FactorFunction | None = None,
    weight_decay: float = 0.0,
    weight_decay_at: Literal["loss", "step"] = "loss",
    clip: float | None = None,
    weights: Literal["clients", "examples"] = "clients",
    mean: RobustRule | Mapping[str, Any] | str = "plain",
    attack: Attack | None = None,
    loss: Loss | str | None = None,
    augment: Sequence[Any] = (),
    collate: UserCollate | str | None = None,
    fresh: bool = False,
    model_weights: Mapping[str, Tensor] | AnyPath | None = None,
    weights_strict: bool = True,
    trainable: str | Sequence[str] | None = None,
    personal: str | Sequence[str] | None = None,
    evaluate_every: int = 10,
    metrics: Sequence[str | Mapping[str, Any] | Callable[..., Any]] | None = None,
    stop: Stop | None = None,
    privacy: Privacy | None = None,
    client_tests: float | Sequence[Any] | None = None,
    personalise: int | None = None,
    stack: int = 1,
    seed: int = 0,
    workers: int = 1,
    resume_from: RunState | None = None,
    progress: bool = False,
) -> TrainingResult:
    """Train a model over clients that keep their data.

    The given model is not changed. Equal arguments give equal bits, on any number of workers. Ctrl-C ends the training
    after the current client; the result has the rounds that are finished.

    Args:
        model: The model, with its initial parameters.
        clients: One torch dataset of (x, y), or one pair of tensors (features, labels), per client; a
            `ClientsOnDemand` if there are too many to hold in memory. Features and labels may be tuples and dicts of
            tensors, and sequences of unequal lengths: the model gets a tuple as its arguments and a dict by name.
        algorithm: The algorithm, such as `fedcm.FedCM(alpha=0.1)`.
        rounds: How many rounds to run.
        test: Held-out examples, in the form of one client.
        validation: Validation data, for choices such as when to stop: a share of every client's examples, which is held
            back, such as 0.1, or other examples in the form of one client.
        participation: A probability (each client independently, 1.0 = every client), a number of clients per round,
            or a `Participation`.
        topology: The graph of a decentralised algorithm, such as `fedcm.Ring()`, its default.
        availability: When clients can take part, such as `fedcm.DayNight(period=24, share=0.5)`; by default always.
        stragglers: How fast clients are, and the deadline of a round: `fedcm.Stragglers(deadline=10.0, spread=0.5)`.
        epochs: Passes over a client's data per round; 1 by default. A number, unequal work such as
            `fedcm.UniformWork(1, 10)`, or a function of (round, client).
        steps: Local steps per round, instead of epochs, in the same forms.
        batch_size: Examples per local step.
        lr: The clients' learning rate in round 0.
        lr_decay: The learning rate is multiplied by this after every round.
        lr_schedule: Factors of the learning rate over the rounds, instead of `lr_decay`: a schedule such as
            `fedcm.Cosine(warmup=5)`, or a function `(round, rounds) → factor`.
        step_schedule: Factors of the learning rate over the local steps of a round, as for `lr_schedule`.
        optimizer: Maps a client's gradients before the algorithm sees them, such as `fedcm.AdamW()`; plain SGD by
            default. Its state is fresh in every round.
        server_lr: The server's learning rate; 1.0 is plain averaging.
        server_lr_schedule: Factors of `server_lr` over the rounds, as for `lr_schedule`.
        weight_decay: Weight decay of the local steps.
        weight_decay_at: "loss" adds it to the client's gradient, "step" to the algorithm's direction.
        clip: The greatest norm of a client's own gradient.
        weights: "clients": every client has weight 1 in the mean; "examples": its number of examples.
        mean: How the reports of a round are averaged: "plain", or a robust mean such as `fedcm.Trimmed(0.2)` or
            "median", which some hostile clients cannot move far.
        attack: What hostile clients do, such as `fedcm.SignFlip(clients=0.2)`, to see what a mean survives.
        loss: `(outputs, labels) → scalar`, or the name of a loss such as "binary_cross_entropy"; by default
            cross-entropy for integer labels, squared error for floats, and the model's own `.loss` if it takes labels
            by name.
        augment: Changes of the training batches in every step: "crop", "flip", "cutout", or functions
            `(batch, generator) → batch`.
        collate: Makes a batch of a list of examples; by default sequences of unequal lengths are padded.
        fresh: Read the items of torch datasets anew in every pass, for random transforms inside them.
        model_weights: A state dict, or a safetensors file, to load into the model before the first round.
        weights_strict: Whether `model_weights` must have exactly the names of the model's tensors. If not, names that
            only one of them has are left out.
        trainable: Shell patterns of the parameters to train, such as "head.*"; all others are frozen, and not sent.
            By default those that require a gradient.
        personal: Shell patterns of the parameters that each client trains and keeps for itself, such as "head.*"; they
            are never sent. Such a model is evaluated by `client_tests`, not by `test`.
        evaluate_every: Rounds between evaluations; the last round is always evaluated.
        metrics: What is evaluated besides the loss, such as `["accuracy", "f1", my_function]`: names, dicts with a name
            and options, or functions of all outputs and labels that return a number. The first is the headline. By
            default the accuracy, if the labels are classes.
        stop: When the training ends early, such as `fedcm.Stop(patience=5)`, by its validation data.
        privacy: Differential privacy of each client, such as `fedcm.Privacy(epsilon=8.0, clip=0.5)`; needs `steps`, and
            participation of many clients with a small probability. The history then has `epsilon`.
        client_tests: Test data of the clients themselves: a share of each client's examples, such as 0.2, or a list
            with examples for each client (None for a client without). The history then has mean, standard deviation,
            worst tenth and worst of the first metric over clients.
        personalise: Passes over a client's own data before a second evaluation of it.
        stack: Clients trained as one batch, which is faster for tiny models.
        seed: The seed of all randomness.
        workers: Processes that share each round. More than the largest cohort are not started if they are also more
            than the cores; `fedcm.ManyWorkersWarning` says so.
        resume_from: Continue from this state: 10 rounds and then 10 more give the bits of 20 rounds. If `stop` has
            ended that training, give another `stop` or none.
        progress: Show a progress line on stderr, and with `fresh` first how long reading a batch anew takes.

    Returns:
        The trained model and its history; see `TrainingResult`.

    Raises:
        UserError: If an argument cannot work.
        Diverged: If the loss or a parameter is no longer finite.
        TrainingFailed: If your own code failed in a worker, or a worker died. With `workers=1`, the exception of your
            own code is raised as it is, which is easier to debug.

    >>> import torch, fedcm
    >>> x = torch.linspace(-1, 1, 200).reshape(20, 10, 1)              # 20 clients with 10 examples each
    >>> clients = [(client, (client[:, 0] > 0).long()) for client in x]
    >>> model, history = fedcm.train(torch.nn.Linear(1, 2), clients, fedcm.FedCM(alpha=0.1), rounds=60, lr=1.0,
    ...                              participation=0.3, test=clients[3], batch_size=5)
    >>> history[-1]["test_accuracy"]
    1.0
    """
    settings = TrainingSettings(
        test=test,
        validation=validation,
        participation=participation,
        topology=topology,
        availability=availability,
        stragglers=stragglers,
        epochs=epochs,
        steps=steps,
        batch_size=batch_size,
        lr=lr,
        lr_decay=lr_decay,
        lr_schedule=lr_schedule,
        step_schedule=step_schedule,
        optimizer=optimizer,
        server_lr=server_lr,
        server_lr_schedule=server_lr_schedule,
        weight_decay=weight_decay,
        weight_decay_at=weight_decay_at,
        clip=clip,
        weights=weights,
        mean=mean,
        attack=attack,
        loss=loss,
        augment=augment,
        collate=collate,
        fresh=fresh,
        model_weights=model_weights,
        weights_strict=weights_strict,
        trainable=trainable,
        personal=personal,
        evaluate_every=evaluate_every,
        metrics=metrics,
        stop=stop,
        privacy=privacy,
        client_tests=client_tests,
        personalise=personalise,
        stack=stack,
        seed=seed,
    )
    history: list[Metrics] = []
    stopped = False
    training = InMemoryTraining(model, clients, algorithm, rounds, settings, workers, resume_from)
    if progress and (reading := describe_reading(training.setup.step_milliseconds)) is not None:
        say(reading)
    with StopSignals(interactive=True) as training.stop_requested, training:
        finished_rounds = show_progress(
            training.run(), total=training.setup.plan.rounds, first=training.next_round, hidden=not progress
        )
        try:
            for finished in finished_rounds:
                history.append(finished.metrics.to_dict())  # noqa: PERF401 - what is there stays after Ctrl-C
        except Stopped:
            stopped = True
        trained = copy.deepcopy(training.setup.problem.bind_initial_personal(training.server.params))
        best = training.find_best()
        stopped_early = training.finished is not None and training.finished.stop is not None
        return TrainingResult(
            trained,
            history,
            training.capture_state(),
            stopped,
            stopped_early=stopped_early,
            best_round=None if best is None else best.round,
            client_results=training.client_results,
            _best_model=None if best is None else best.model,
            _personal_names=training.setup.problem.personal_names,
        )


def rounds(
    model: nn.Module,
    clients: Sequence[Any] | ClientsOnDemand,
    algorithm: Algorithm[Any, Any, Any, Any],
    *,
    rounds: int,
    workers: int = 1,
    resume_from: RunState | None = None,
    **settings: Unpack[TrainingSettings],
) -> Generator[TrainingRound, None, None]:
    """Train round by round: `for round in fedcm.rounds(…)`. Leave the loop with `break` to stop early.

    Args:
        model: The model, with its initial parameters. It is not changed.
        clients: The clients, as for `fedcm.train`.
        algorithm: The algorithm.
        rounds: The greatest number of rounds.
        workers: Processes that share each round.
        resume_from: Continue from this state.
        **settings: All other settings of `fedcm.train` but `progress`: test, lr, participation, …

    Yields:
        Each round when it is finished, with its metrics, its model and its state.

    Raises:
        UserError: If an argument cannot work.
        Diverged: If the loss or a parameter is no longer finite.
        TrainingFailed: If your own code failed in a worker, or a worker died. With `workers=1`, the exception of your
            own code is raised as it is, which is easier to debug.

    >>> import torch, fedcm
    >>> clients = [(torch.linspace(-1, 1, 8)[:, None] + k / 10, torch.arange(8) // 4) for k in range(4)]
    >>> for round in fedcm.rounds(torch.nn.Linear(1, 2), clients, fedcm.FedCM(), rounds=100, lr=1.0):
    ...     if round.metrics["loss"] < 0.3:
    ...         break
    >>> model = round.model()
    """
    return _iterate(InMemoryTraining(model, clients, algorithm, rounds, settings, workers, resume_from))


def _iterate(training: InMemoryTraining) -> Generator[TrainingRound, None, None]:
    current: TrainingRound | None = None
    with training:
        try:
            for finished in training.run():
                current = TrainingRound(finished, training)
                yield current
        finally:
            if current is not None:
                current._keep_state()
