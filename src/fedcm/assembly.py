"""From an experiment to the objects that run it. Whatever cannot work is refused here, before anything is written."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
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
    data = ArrayData(dataset, parts)
    problem = _problem(experiment, data)
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
            raise Refused("labels that are not classes can only be split 'iid' or 'natural'")
        labels = np.zeros(len(labels), np.int64)
    return experiment.split.parts(labels, generator(experiment.seed, Purpose.SPLIT))


def _problem(experiment: Experiment, data: ArrayData) -> Problem:
    seed = torch_seed(experiment.seed, Purpose.INITIAL_PARAMS)
    model = build_model(experiment.model.name, data.input_shape, data.classes, experiment.model.options, seed)
    client = experiment.client
    problem = Problem(
        model,
        F.cross_entropy if data.classes is not None else squared_error,
        weight_decay=client.weight_decay if client.weight_decay_at == "loss" else 0.0,
        clip=client.clip,
    )
    _try_once(problem, data, experiment.model.name)
    return problem


def _try_once(problem: Problem, data: ArrayData, model: str) -> None:
    """One example through the model: shapes that do not fit are a sentence now, not a traceback in round 0."""
    features, labels = data.client(0)
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            outputs = problem.bind(problem.initial())(features[:1])
            problem.loss(outputs, labels[:1])
    except Exception as error:
        raise Refused(
            f"the model {model!r} must take data of shape {data.input_shape} and give {data.classes or 1} outputs, "
            f"and failed on one example: {type(error).__name__}: {error}"
        ) from None
    if data.classes is not None and outputs.shape[1] < data.classes:
        raise Refused(
            f"the model {model!r} must give {data.classes} outputs, one a class, and gives {outputs.shape[1]}"
        )
