"""From an experiment to the objects that run it. Whatever cannot work is refused here, before anything is written."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch.nn.functional as F

from fedcm.algorithm import Algorithm
from fedcm.chance import Purpose, generator, torch_seed
from fedcm.data import load
from fedcm.data.batches import LocalWork
from fedcm.data.dataset import Dataset
from fedcm.data.federated import ArrayData, fingerprint
from fedcm.data.partition import Natural, Parts, by_owner
from fedcm.executors.executor import Executor
from fedcm.executors.local import LocalExecutor
from fedcm.experiment import Experiment
from fedcm.models import build_model
from fedcm.problem import Problem, squared_error
from fedcm.refusal import Refused
from fedcm.rehearsal import rehearse
from fedcm.schedule import Schedule
from fedcm.training import Plan


@dataclass(frozen=True)
class Assembly:
    experiment: Experiment
    algorithm: Algorithm[Any, Any, Any, Any]
    problem: Problem
    data: ArrayData
    executor: Executor
    plan: Plan
    checksums: dict[str, str]  # of the data and the split


def assemble(
    experiment: Experiment, data_dir: Path | None = None, stop_requested: Callable[[], bool] = lambda: False
) -> Assembly:
    dataset = load(experiment.data.source, data_dir)
    parts = split(experiment, dataset)
    problem = _problem(experiment, dataset)
    data = ArrayData(dataset, parts, problem.dtype)
    rehearse(problem, data.client(0), data.classes)
    client = experiment.client
    executor = LocalExecutor(
        experiment.algorithm,
        problem,
        data,
        LocalWork(client.batch_size, client.epochs or 1, client.steps),
        seed=experiment.seed,
        step_decay=client.weight_decay if client.weight_decay_at == "step" else 0.0,
        weigh_by_examples=experiment.server.weights == "examples",
        stop_requested=stop_requested,
    )
    plan = Plan(
        rounds=experiment.rounds,
        population=data.population,
        participation=experiment.participation,
        schedule=Schedule(client.lr, client.lr_decay, experiment.server.lr),
        seed=experiment.seed,
        evaluate_every=experiment.evaluation.every,
    )
    return Assembly(experiment, experiment.algorithm, problem, data, executor, plan, fingerprint(dataset, parts))


def split(experiment: Experiment, dataset: Dataset) -> Parts:
    """Who holds which training examples."""
    if isinstance(experiment.split, Natural) and dataset.owners is not None:
        return by_owner(dataset.owners)
    labels = dataset.train.labels.numpy()
    if dataset.classes is None:
        if type(experiment.split).__name__ != "IID":
            raise Refused(
                "labels that are floats can only be split 'iid' or 'natural'; if they are classes, make them integers"
            )
        labels = np.zeros(len(labels), np.int64)
    return experiment.split.parts(labels, generator(experiment.seed, Purpose.SPLIT))


def _problem(experiment: Experiment, dataset: Dataset) -> Problem:
    seed = torch_seed(experiment.seed, Purpose.INITIAL_PARAMS)
    shape = tuple(dataset.train.features.shape[1:])
    client = experiment.client
    return Problem(
        build_model(experiment.model.name, shape, dataset.classes, experiment.model.options, seed),
        F.cross_entropy if dataset.classes is not None else squared_error,
        weight_decay=client.weight_decay if client.weight_decay_at == "loss" else 0.0,
        clip=client.clip,
    )
