"""Run every user-provided part once, before anything is written."""

from fedcm.config.sections import Experiment
from fedcm.core.losses import (
    Loss,
    cross_entropy,
    is_one_hot,
)
from fedcm.core.problem import Problem
from fedcm.data.augmentation import Augment
from fedcm.data.batches import LocalWork
from fedcm.data.dataset import Examples
from fedcm.data.federated import FederatedData
from fedcm.data.structures.tree import are_equal
from fedcm.errors import UserError
from fedcm.runs.smoke_test import (
    reject_failing_algorithm,
    reject_lone_examples,
    reject_unusable_cohorts,
    smoke_test,
    smoke_test_augment,
)


def check_user_code(
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


def _reject_unseeded_items(data: FederatedData) -> None:
    """Raise UserError if items that are read anew do not follow from the seeds of the global generators."""
    if not are_equal(tuple(data.reread_client(0, 0)), tuple(data.reread_client(0, 0))):
        raise UserError(
            "data.fresh needs datasets that draw from the global generators of torch, NumPy or Python, which it seeds, "
            "but client 0 has other items when it is read twice with one seed; leave out a generator of your own"
        )
