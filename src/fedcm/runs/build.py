"""Build the objects that train from an experiment. Input that cannot work is rejected here, before a folder exists."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, final

import torch
from torch import nn

from fedcm.config.conditions import list_condition_files, reject_conditions
from fedcm.config.experiment import (
    reject_absent_clients,
    reject_long_warmups,
    reject_optimizer,
    reject_server_lr,
    reject_step_schedule,
    reject_unequal_weights,
    reject_unusable_rates,
)
from fedcm.config.robustness import reject_robustness
from fedcm.config.sections import Experiment
from fedcm.core.aggregation import Aggregation, PrivateMean
from fedcm.core.algorithm import Algorithm
from fedcm.core.local.stacked import reject_batch_dependent_model
from fedcm.core.local.step_factors import StepFactors
from fedcm.core.losses import (
    LIKE_LABELS,
    Loss,
    find_loss,
)
from fedcm.core.privacy.keystream import derive_cohort_seed
from fedcm.core.problem import Problem
from fedcm.core.round_loop import TrainingPlan
from fedcm.core.scoring.whole import MetricFunction
from fedcm.core.stopping import WatchedMetric
from fedcm.data import load_source
from fedcm.data.augmentation import Augment, make_augment
from fedcm.data.batches import LocalWork
from fedcm.data.dataset import ClientsOnDemand, Dataset
from fedcm.data.federated import FederatedData
from fedcm.data.structures.collate import Collate, make_collate
from fedcm.data.structures.tree import list_leaves
from fedcm.executors.client_runner import ClientRunner
from fedcm.executors.client_state_file import ClientStatesInFile
from fedcm.models import build_model
from fedcm.models.trainable import select_trainable
from fedcm.models.weights import load_weights_file, reject_unusable_parameters
from fedcm.privacy.key_file import read_noise_key
from fedcm.privacy.settings import fill_noise, make_budget, make_private_mean, reject_unfit_privacy
from fedcm.rng import Purpose, make_torch_seed
from fedcm.runs.autotune import compile_model, tune_engine
from fedcm.runs.choices import choose_validation_metric
from fedcm.runs.data_split import make_federated_data
from fedcm.runs.metric_check import build_metrics
from fedcm.runs.parts.client_evaluation import make_client_evaluation
from fedcm.runs.parts.engine import restrict_engine
from fedcm.runs.parts.plan import build_plan
from fedcm.runs.parts.problem import build_problem, reject_with_personal
from fedcm.runs.parts.robustness import build_defence
from fedcm.runs.parts.tokens import reject_unknown_tokens
from fedcm.runs.parts.user_code import check_user_code
from fedcm.runs.smoke_test import (
    reject_unusable_step_factors,
)
from fedcm.runs.timing import time_reading
from fedcm.system.checksum import compute_file_sha256, compute_sha256
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
        functions_sha256: By its use, the checksum of each function that is a Python object of this program.
        notices: What the user should know before the run, a sentence each.
    """

    experiment: Experiment
    algorithm: Algorithm[Any, Any, Any, Any]
    problem: Problem
    runner: ClientRunner
    plan: TrainingPlan
    step_milliseconds: dict[str, float]
    tuned_settings: tuple[str, ...]
    best_by: WatchedMetric | None = None
    functions_sha256: Mapping[str, str] = field(default_factory=dict)
    notices: tuple[str, ...] = ()

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

        The key decides the noise, and who takes part: sampling amplifies privacy only while nobody knows the cohorts.

        Raises:
            UserError: If the key cannot be read.
        """
        if not self.experiment.privacy.secret:
            return self
        mean = self.runner.aggregation
        assert isinstance(mean, PrivateMean)
        key = read_noise_key(folder)
        runner = replace(self.runner, aggregation=replace(mean, key=key))
        return replace(self, runner=runner, plan=replace(self.plan, seed=derive_cohort_seed(key)))

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
        data = load_source(experiment.data.source, data_dir, fresh=bool(experiment.data.fresh), may_map=True)
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
    reject_unusable_parameters(dict(model.named_parameters()), f"the model {type(model).__name__}")
    if experiment.model.train is not None:
        select_trainable(model, experiment.model.train)
    if experiment.model.personal:
        reject_with_personal(experiment, data)
    reject_unequal_weights(experiment.algorithm, experiment.server)
    reject_robustness(experiment)
    reject_server_lr(experiment.algorithm, experiment.server)
    reject_step_schedule(experiment.algorithm, experiment.client)
    reject_unusable_rates(experiment)
    reject_long_warmups(experiment)
    reject_absent_clients(experiment.algorithm, experiment.participation, data.population)
    reject_conditions(experiment.algorithm, experiment.availability, experiment.stragglers)
    reject_unfit_privacy(experiment)
    experiment = fill_noise(experiment)
    if augment is None and experiment.data.augment:
        augment = make_augment(experiment.data.augment)
    if collate is None and experiment.data.collate is not None:
        collate = make_collate(import_function(experiment.data.collate, "data.collate"))
    if collate is None:
        reject_unknown_tokens(model, data)
    problem = build_problem(experiment, model, loss, collate, data)
    client = experiment.client
    local_work = LocalWork(client.batch_size, client.epochs or 1, client.steps, experiment.stragglers)
    first = check_user_code(experiment, problem, data, local_work, loss, augment)
    reject_optimizer(experiment.algorithm, client)
    ready = data.prepare_for(problem.dtype, problem.device)
    metrics = build_metrics(experiment.evaluation.metrics, metric_functions, problem, ready)
    plan = build_plan(experiment, data, local_work, metrics)
    private: Aggregation | None = None
    if experiment.privacy.is_on:
        budget = make_budget(experiment, data.population)
        plan = replace(plan, budget=budget)
        private = make_private_mean(experiment, data.population, budget)
    given = restrict_engine(experiment, data, augment, collate)
    engine, tuned_settings, timings = tune_engine(given, problem, data, local_work, plan)
    data = data.prepare_for(problem.dtype, problem.device, engine.layout)
    if plan.deadline is not None:
        plan = replace(plan, deadline=replace(plan.deadline, data=data))  # so that the data as given can be freed
    if engine.stack > 1:
        reject_batch_dependent_model(problem, first)
    if engine.compile == "on":
        compile_model(problem, client.batch_size, data.client(0))
    defence = build_defence(experiment, problem, data)
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
        aggregation=private or defence.aggregation,
        poison=defence.poison,
        client_evaluation=make_client_evaluation(experiment, data, metrics),
    )
    reject_unusable_step_factors(runner, client.lr)
    if runner.fresh:
        timings |= time_reading(runner)
    tuned = experiment.model_copy(update={"engine": engine})
    best_by = choose_validation_metric(metrics, data)
    return TrainingSetup(
        tuned, experiment.algorithm, problem, runner, plan, timings, tuned_settings, best_by, notices=defence.notices
    )


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
