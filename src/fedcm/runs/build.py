"""Build the objects that train from an experiment. Input that cannot work is rejected here, before a folder exists."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from inspect import signature
from pathlib import Path
from types import MappingProxyType
from typing import Any, final

import torch
from torch import nn

from fedcm.algorithms.registry import get_algorithm_name
from fedcm.config.conditions import list_condition_files, reject_conditions
from fedcm.config.experiment import (
    reject_absent_clients,
    reject_optimizer,
    reject_server_lr,
    reject_step_schedule,
    reject_unequal_weights,
    reject_unusable_rates,
)
from fedcm.config.sections import EngineSection, Experiment
from fedcm.core.aggregation import PLAIN_MEAN, Aggregation, PrivateMean
from fedcm.core.algorithm import Algorithm, is_decentralised
from fedcm.core.conditions.availability import list_available
from fedcm.core.conditions.deadline import SimulatedDeadline
from fedcm.core.local.stacked import reject_batch_dependent_model
from fedcm.core.local.step_factors import StepFactors
from fedcm.core.losses import (
    LIKE_LABELS,
    Loss,
    cross_entropy,
    find_loss,
    get_model_loss,
    is_one_hot,
    squared_error,
)
from fedcm.core.model_mode import warn_of_eval_mode
from fedcm.core.participation import FixedSize
from fedcm.core.problem import Problem
from fedcm.core.round_loop import TrainingPlan
from fedcm.core.schedule import Schedule
from fedcm.core.scoring.metric_set import MetricSet
from fedcm.core.scoring.whole import MetricFunction
from fedcm.core.stopping import WatchedMetric
from fedcm.core.topology import Ring
from fedcm.data import load_source
from fedcm.data.augmentation import Augment, make_augment
from fedcm.data.batches import LocalWork
from fedcm.data.checksum import compute_file_sha256, compute_sha256
from fedcm.data.dataset import ClientsOnDemand, Dataset, Examples
from fedcm.data.federated import ArrayData, FederatedData
from fedcm.data.structures.collate import Collate, make_collate, pad_examples
from fedcm.data.structures.tree import are_equal, list_leaves
from fedcm.data.work.amounts import FileWork
from fedcm.errors import UserError
from fedcm.executors.client_runner import ClientRunner
from fedcm.executors.client_state_file import ClientStatesInFile
from fedcm.executors.client_tests import ClientEvaluation
from fedcm.models import build_model
from fedcm.models.trainable import select_personal, select_trainable
from fedcm.models.weights import load_weights_file
from fedcm.privacy.settings import fill_noise, make_budget, make_private_mean, reject_unfit_privacy
from fedcm.rng import Purpose, make_torch_seed
from fedcm.runs.autotune import compile_model, tune_engine
from fedcm.runs.choices import choose_validation_metric, make_stop_rule
from fedcm.runs.data_split import make_federated_data
from fedcm.runs.metric_check import build_metrics
from fedcm.runs.noise_key import read_noise_key
from fedcm.runs.smoke_test import (
    reject_failing_algorithm,
    reject_lone_examples,
    reject_unusable_cohorts,
    reject_unusable_step_factors,
    smoke_test,
    smoke_test_augment,
)
from fedcm.runs.timing import time_reading
from fedcm.system.hardware import resolve_device
from fedcm.system.imports import import_function

WEIGHTS = "weights"  # the checksum of the file of initial weights
BuildSetup = Callable[[Experiment, Path | None], "TrainingSetup"]


@final
@dataclass(frozen=True)
class TrainingSetup:
    """Everything that a training needs, checked.

    Attributes:
        experiment: The experiment, with every "auto" of its engine replaced by the choice.
        algorithm: The algorithm.
        problem: The model, its loss and its gradient.
        runner: Runs the local steps of clients.
        plan: Rounds, participation and learning rates.
        step_milliseconds: The timings behind the engine's choices: milliseconds per step of one client.
        tuned_settings: The settings of the engine that autotune chose.
        best_by: The metric on validation data by which the best model is chosen; None without validation data.
    """

    experiment: Experiment
    algorithm: Algorithm[Any, Any, Any, Any]
    problem: Problem
    runner: ClientRunner
    plan: TrainingPlan
    step_milliseconds: dict[str, float]
    tuned_settings: tuple[str, ...]
    best_by: WatchedMetric | None = None

    @cached_property
    def checksums(self) -> dict[str, str]:
        """Checksums of the data, their split over clients, and of graph, initial weights and conditions, if given."""
        experiment, client = self.experiment, self.experiment.client
        checksums = self.runner.data.checksums()
        checksums |= list_condition_files(client.epochs, client.steps, experiment.availability, experiment.stragglers)
        if self.plan.topology is not None:
            checksums |= {"topology": compute_sha256(self.plan.mixing)}
        if self.experiment.model.weights is not None:
            checksums |= {WEIGHTS: compute_file_sha256(Path(self.experiment.model.weights))}
        return checksums

    def init_server(self) -> Any:
        """Return the algorithm's server state before round 0."""
        return self.algorithm.init_server(self.problem.initial_params)

    def with_noise_key(self, folder: Path) -> "TrainingSetup":
        """Return the setup of a run with this folder: with its secret key, if the experiment wants one.

        Raises:
            UserError: If the key cannot be read.
        """
        if not self.experiment.privacy.secret:
            return self
        mean = self.runner.aggregation
        assert isinstance(mean, PrivateMean)
        return replace(self, runner=replace(self.runner, aggregation=replace(mean, key=read_noise_key(folder))))

    def open_client_states(self, path: Path) -> ClientStatesInFile:
        """Open the file of client states of a run, which all its workers share."""
        settings = self.experiment.checkpoints
        rounds_held = settings.every * (settings.keep + 1)
        rounded = torch.bfloat16 if self.experiment.engine.client_states == "bfloat16" else None
        return ClientStatesInFile(self.runner.initial_state, path, rounds_held, rounded)


def build(
    experiment: Experiment,
    data_dir: Path | None = None,
    *,
    data: Dataset | ClientsOnDemand | FederatedData | None = None,
    model: nn.Module | None = None,
    loss: Loss | None = None,
    augment: Augment | None = None,
    collate: Collate | None = None,
    metric_functions: Mapping[str, MetricFunction] = MappingProxyType({}),
) -> TrainingSetup:
    """Build what an experiment describes.

    Args:
        experiment: The experiment.
        data_dir: Folder of prepared datasets.
        data: Data to use instead of loading `experiment.data.source`.
        model: A model to use, with its parameters, instead of building `experiment.model`. The initial weights and the
            choice of trained parameters change it.
        loss: The loss; by default that of the experiment, else the model's own if the model takes labels by name, else
            cross-entropy, or squared error if the labels are floats.
        augment: Changes the batches of training; by default as the experiment says.
        collate: Makes a batch of selected examples; by default as the experiment says.
        metric_functions: Metrics that are Python objects, by their names in `evaluation.metrics`.

    Raises:
        UserError: If the parts do not fit together.
    """
    if data is None:
        data = load_source(experiment.data.source, data_dir, fresh=bool(experiment.data.fresh))
    if isinstance(data, Dataset | ClientsOnDemand):
        data = make_federated_data(experiment, data)
    if loss is None and experiment.model.loss is not None:
        loss = find_loss(experiment.model.loss)
    if model is None:
        seed = make_torch_seed(experiment.seed, Purpose.INITIAL_PARAMS)
        name, options = experiment.model.name, experiment.model.options
        model = build_model(name, data.input_shape, count_outputs(data, loss), options, seed)
    if experiment.model.weights is not None:
        load_weights_file(model, Path(experiment.model.weights), strict=experiment.model.weights_strict)
    if experiment.model.train is not None:
        select_trainable(model, experiment.model.train)
    if experiment.model.personal:
        _reject_with_personal(experiment, data)
    reject_unequal_weights(experiment.algorithm, experiment.server)
    reject_server_lr(experiment.algorithm, experiment.server)
    reject_step_schedule(experiment.algorithm, experiment.client)
    reject_unusable_rates(experiment)
    reject_absent_clients(experiment.algorithm, experiment.participation, data.population)
    reject_conditions(experiment.algorithm, experiment.availability, experiment.stragglers)
    reject_unfit_privacy(experiment)
    experiment = fill_noise(experiment)
    if augment is None and experiment.data.augment:
        augment = make_augment(experiment.data.augment)
    if collate is None and experiment.data.collate is not None:
        collate = make_collate(import_function(experiment.data.collate, "data.collate"))
    problem = _build_problem(experiment, model, loss, collate, data)
    client = experiment.client
    local_work = LocalWork(client.batch_size, client.epochs or 1, client.steps, experiment.stragglers)
    first = _check_user_code(experiment, problem, data, local_work, loss, augment)
    reject_optimizer(experiment.algorithm, client)
    ready = data.prepare_for(problem.dtype, problem.device)
    metrics = build_metrics(experiment.evaluation.metrics, metric_functions, problem, ready)
    plan = _build_plan(experiment, data, local_work, metrics)
    aggregation: Aggregation = PLAIN_MEAN
    if experiment.privacy.is_on:
        budget = make_budget(experiment, data.population)
        plan = replace(plan, budget=budget)
        aggregation = make_private_mean(experiment, data.population, budget)
    given = _restrict_engine(experiment, data, augment, collate)
    engine, tuned_settings, timings = tune_engine(given, problem, data, local_work, plan)
    data = data.prepare_for(problem.dtype, problem.device, engine.layout)
    if plan.deadline is not None:
        plan = replace(plan, deadline=replace(plan.deadline, data=data))  # so that the data as given can be freed
    if engine.stack > 1:
        reject_batch_dependent_model(problem, first)
    if engine.compile == "on":
        compile_model(problem, client.batch_size, data.client(0))
    runner = ClientRunner(
        experiment.algorithm,
        problem,
        data,
        local_work,
        seed=experiment.seed,
        step_decay=client.weight_decay if client.weight_decay_at == "step" else 0.0,
        weigh_by_examples=experiment.server.weights == "examples",
        stack=engine.stack,
        augment=augment,
        fresh=bool(experiment.data.fresh),
        step_factors=StepFactors(client.step_schedule) if client.step_schedule is not None else None,
        optimizer=None if client.optimizer is None or client.optimizer.is_identity else client.optimizer,
        metrics=metrics,
        aggregation=aggregation,
        client_evaluation=_make_client_evaluation(experiment, data, metrics),
    )
    reject_unusable_step_factors(runner, client.lr)
    if runner.fresh:
        timings |= time_reading(runner)
    tuned = experiment.model_copy(update={"engine": engine})
    best_by = choose_validation_metric(metrics, data)
    return TrainingSetup(tuned, experiment.algorithm, problem, runner, plan, timings, tuned_settings, best_by)


def count_outputs(data: FederatedData, loss: Loss | None = None) -> int:
    """Return how many outputs a model needs: one per class, or one per label of an example.

    Args:
        data: The data.
        loss: The loss, if it is not the default one.
    """
    if data.classes is not None and loss not in LIKE_LABELS:
        return data.classes
    labels = data.client(0).labels
    return sum(leaf[0].numel() for leaf in list_leaves(labels))


def _restrict_engine(
    experiment: Experiment, data: FederatedData, augment: Augment | None, collate: Collate | None
) -> EngineSection:
    """Return the engine without stacks and compilation if the batches rule them out.

    Raises:
        UserError: If the experiment asks for them all the same.
    """
    reasons = {
        "data.augment": augment is not None,
        "data.collate": collate is not None,
        "data.fresh": bool(experiment.data.fresh),
        "model.personal": bool(experiment.model.personal),
        "features or labels of several tensors, unequal lengths or ignored labels": not data.is_stackable,
    }
    engine = experiment.engine
    for reason, applies in reasons.items():
        if applies and engine.stack not in ("auto", 1):
            raise UserError(f"clients with {reason} cannot be stacked, got engine.stack = {engine.stack}; set it to 1")
        if applies:
            engine = engine.model_copy(update={"stack": 1})
    if data.has_fixed_shapes and collate is None:
        return engine
    if engine.compile == "on":  # torch compiles again for every new length, and gives up after some: bits would vary
        raise UserError(
            "a compiled model needs batches of one shape, but data.collate or unequal lengths change it; set "
            "engine.compile = 'off'"
        )
    return engine.model_copy(update={"compile": "off"})


def _build_problem(
    experiment: Experiment, model: nn.Module, loss: Loss | None, collate: Collate | None, data: FederatedData
) -> Problem:
    client, engine = experiment.client, experiment.engine
    warn_of_eval_mode(model)
    model = model.to(resolve_device(engine.device))
    if engine.precision == "float64":
        model = model.double()
    return Problem(
        model,
        loss or _choose_loss(model, data),
        weight_decay=client.weight_decay if client.weight_decay_at == "loss" else 0.0,
        clip=client.clip,
        autocast=engine.precision == "bf16",
        collate=collate or pad_examples,
        personal=select_personal(model, experiment.model.personal) if experiment.model.personal else (),
    )


def _reject_with_personal(experiment: Experiment, data: FederatedData) -> None:
    """Raise UserError if the experiment has a setting that personal parameters rule out."""
    name = get_algorithm_name(experiment.algorithm)
    if is_decentralised(experiment.algorithm):
        raise UserError(f"model.personal needs an algorithm with a server, got {name!r}")
    if data.validation_size:
        raise UserError(
            "a model with personal parameters is evaluated at its clients, so there must be no validation data; set "
            "evaluation.clients instead, to 0.2 for example"
        )
    if experiment.engine.client_states != "exact":
        raise UserError(
            "personal parameters are client states and must not be rounded, got engine.client_states = "
            f'"{experiment.engine.client_states}"; set it to "exact"'
        )


def _choose_loss(model: nn.Module, data: FederatedData) -> Loss:
    """Return the default loss for these data."""
    if isinstance(data.input_shape, Mapping) and "labels" in signature(model.forward).parameters:
        return get_model_loss
    return cross_entropy if data.classes is not None else squared_error


def _make_client_evaluation(experiment: Experiment, data: FederatedData, metrics: MetricSet) -> ClientEvaluation | None:
    epochs = experiment.evaluation.personalise
    if not (isinstance(data, ArrayData) and data.client_tests is not None):
        if epochs is not None:
            raise UserError(
                f"evaluation.personalise = {epochs} needs clients with test data of their own; set evaluation.clients, "
                "to 0.2 for example"
            )
        return None
    headline = MetricSet(metrics.members[:1], metrics.is_given)
    return ClientEvaluation(headline, data.classes is None and not metrics.is_given, epochs)


def _reject_unseeded_items(data: FederatedData) -> None:
    """Raise UserError if items that are read anew do not follow from the seeds of the global generators."""
    if not are_equal(tuple(data.reread_client(0, 0)), tuple(data.reread_client(0, 0))):
        raise UserError(
            "data.fresh needs datasets that draw from the global generators of torch, NumPy or Python, which it seeds, "
            "but client 0 has other items when it is read twice with one seed; leave out a generator of your own"
        )


def _build_plan(experiment: Experiment, data: FederatedData, local_work: LocalWork, metrics: MetricSet) -> TrainingPlan:
    participation = experiment.participation
    if isinstance(participation, FixedSize) and participation.clients > data.population:
        raise UserError(
            f"participation must be at most {data.population} clients, the whole population, got "
            f"{participation.clients}"
        )
    client, server = experiment.client, experiment.server
    schedule = Schedule(client.lr, client.lr_decay, server.lr, client.schedule, server.schedule, experiment.rounds)
    every = experiment.evaluation.every
    topology = experiment.topology or (Ring() if is_decentralised(experiment.algorithm) else None)
    deadline = SimulatedDeadline(local_work, data, experiment.seed) if experiment.stragglers is not None else None
    plan = TrainingPlan(
        experiment.rounds,
        data.population,
        participation,
        schedule,
        experiment.seed,
        every,
        topology,
        experiment.availability,
        deadline,
        make_stop_rule(experiment.stop, metrics, data, every),
        evaluates_clients=isinstance(data, ArrayData) and data.client_tests is not None,
    )
    if topology is not None:
        _ = plan.mixing  # now, so that a graph that does not fit is rejected before the run begins
    _check_conditions(plan, local_work)
    return plan


def _check_conditions(plan: TrainingPlan, local_work: LocalWork) -> None:
    """Read the files of the conditions and draw round 0 once, so that what fails is rejected before the run begins."""
    for unit, amount in (("epochs", local_work.epochs), ("steps", local_work.steps)):
        if isinstance(amount, FileWork):
            amount.check(unit, plan.population, plan.rounds)
        elif amount is not None and not isinstance(amount, int):
            amount.draw_amount(plan.seed, 0, 0)
    if local_work.stragglers is not None:
        local_work.stragglers.check(plan.population)
    if plan.availability is not None:
        list_available(plan.availability, plan.population, plan.seed, 0)


def _check_user_code(
    experiment: Experiment,
    problem: Problem,
    data: FederatedData,
    local_work: LocalWork,
    loss: Loss | None,
    augment: Augment | None,
) -> Examples:
    """Run every user-provided part once, so that what fails is rejected before the run begins.

    Returns:
        The examples of client 0.
    """
    reject_unusable_cohorts(experiment.participation, data.population, experiment.seed)
    ready = data.prepare_for(problem.dtype, problem.device)
    first = ready.client(0)
    if loss is None and data.classes is None and is_one_hot(first.labels):
        raise UserError(
            f"float labels mean regression, and these labels of shape {tuple(first.labels.shape)} look one-hot; give "
            "their argmax as integers, or a loss of your own"
        )
    smoke_test(problem, first, data.classes if problem.loss is cross_entropy else None)
    if augment is not None:
        smoke_test_augment(problem, augment, first)
    if experiment.data.fresh:
        _reject_unseeded_items(ready)
    reject_failing_algorithm(experiment.algorithm, problem)
    reject_lone_examples(problem, first, ready, local_work)
    return first
