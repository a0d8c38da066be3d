"""From an experiment to the objects that run it. Whatever cannot work is refused here, before anything is written."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, final

import numpy as np

from fedcm.config.experiment import Experiment
from fedcm.core.algorithm import Algorithm
from fedcm.core.losses import is_one_hot
from fedcm.core.problem import Problem
from fedcm.core.round_loop import TrainingPlan
from fedcm.data import find
from fedcm.data.dataset import ClientsOnDemand, Dataset
from fedcm.data.federated import ArrayData, FederatedData
from fedcm.data.on_demand import OnDemandData
from fedcm.data.partition import IID, Natural, Parts, split_by_owner
from fedcm.errors import UserError
from fedcm.executors.client_runner import ClientRunner
from fedcm.models import build_model
from fedcm.rng import Purpose, make_generator, make_torch_seed
from fedcm.runs.wiring import wire


@final
@dataclass(frozen=True)
class Assembly:
    experiment: Experiment  # with nothing left to choose
    algorithm: Algorithm[Any, Any, Any, Any]
    problem: Problem
    runner: ClientRunner
    plan: TrainingPlan
    measured: dict[str, float]  # what the engine's choices rest on: milliseconds a step of one client

    @cached_property
    def checksums(self) -> dict[str, str]:
        """Of the data and the split."""
        return self.runner.data.checksums()


def assemble(experiment: Experiment, data_dir: Path | None = None, dataset: Dataset | None = None) -> Assembly:
    """With a dataset that is there already, its source is not asked."""
    return assemble_on(experiment, federated(experiment, dataset or find(experiment.data.source, data_dir)))


def assemble_on(experiment: Experiment, data: FederatedData) -> Assembly:
    """On data that are dealt out already."""
    seed = make_torch_seed(experiment.seed, Purpose.INITIAL_PARAMS)
    wired = wire(
        experiment.algorithm,
        build_model(experiment.model.name, data.input_shape, _count_outputs(data), experiment.model.options, seed),
        data,
        experiment.client,
        experiment.server,
        participation=experiment.participation,
        rounds=experiment.rounds,
        seed=experiment.seed,
        evaluate_every=experiment.evaluation.every,
        engine=experiment.engine,
    )
    chosen = experiment.model_copy(update={"engine": wired.engine})
    return Assembly(chosen, experiment.algorithm, wired.problem, wired.runner, wired.plan, wired.measured)


def _count_outputs(data: FederatedData) -> int:
    """One per class, or for a regression one per number that an example has as labels."""
    return data.classes if data.classes is not None else data.client(0).labels[0].numel()


def federated(experiment: Experiment, source: Dataset | ClientsOnDemand) -> FederatedData:
    """The data dealt out over clients, as the experiment says or as they come."""
    if not isinstance(source, ClientsOnDemand):
        return ArrayData(source, split(experiment, source))
    if not isinstance(experiment.split, Natural):
        raise UserError(
            "clients on demand bring their own split, so split.kind must be 'natural', got "
            f"{type(experiment.split).__name__}; leave [split] out"
        )
    return OnDemandData(source, experiment.data.source)


def split(experiment: Experiment, dataset: Dataset) -> Parts:
    """Who holds which training examples."""
    if isinstance(experiment.split, Natural) and dataset.owners is not None:
        return split_by_owner(dataset.owners)
    labels = dataset.train.labels.numpy()
    hint = "; for one-hot labels give their argmax" if is_one_hot(dataset.train.labels) else ""
    if dataset.classes is None:
        if not isinstance(experiment.split, IID | Natural):
            raise UserError(
                "labels that are floats can only be split 'iid' or 'natural'; if they are classes, make them integers"
                + hint
            )
        labels = np.zeros(len(labels), np.int64)
    if labels.size > len(labels) and not isinstance(experiment.split, IID | Natural):
        raise UserError(
            "a split by label needs one label per example, got labels of shape "
            f"{tuple(dataset.train.labels.shape)}; use split.kind = 'iid' or 'natural'{hint}"
        )
    return experiment.split.parts(labels.reshape(len(labels), -1)[:, 0], make_generator(experiment.seed, Purpose.SPLIT))
