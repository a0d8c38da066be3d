"""Build the robust mean and the attack of an experiment, and reject rounds with too few reports for the mean."""

from typing import Any, NamedTuple

import numpy as np

from fedcm.config.choices import describe_mean
from fedcm.config.sections import Experiment
from fedcm.core.aggregation import Aggregation
from fedcm.core.aggregation.robust import RobustRule, make_aggregation
from fedcm.core.aggregation.robust.rule import count_table_bytes, format_table_memory
from fedcm.core.attacks.hostile import draw_hostile
from fedcm.core.attacks.kinds import CollusionAttack, DataAttack
from fedcm.core.attacks.poison import Poison, make_poison
from fedcm.core.attacks.reports import AttackedMean
from fedcm.core.contract.templates import make_templates
from fedcm.core.participation import Everyone, FixedSize, Independent
from fedcm.core.problem import Problem
from fedcm.data.federated import FederatedData
from fedcm.errors import UserError


class Defence(NamedTuple):
    """How reports are averaged, and what hostile clients train on."""

    aggregation: Aggregation
    poison: Poison | None
    notices: tuple[str, ...]  # what the user should know before the run


def build_defence(experiment: Experiment, problem: Problem, data: FederatedData) -> Defence:
    """Build the mean of an experiment, with its attack if there is one.

    Raises:
        UserError: If the rounds have too few clients for the mean, or the attack does not fit the data.
    """
    mean, attack, seed = experiment.server.mean, experiment.attack, experiment.seed
    reports = estimate_cohort(experiment, data.population)
    tables, poison = 0, None
    if isinstance(mean, RobustRule):
        _reject_small_cohorts(mean, reports)
        tables += mean.needs_table
    aggregation = make_aggregation(mean, seed, experiment.algorithm)
    if attack is not None:
        hostile = frozenset(draw_hostile(attack, data.population, seed).tolist())
        aggregation = AttackedMean(aggregation, attack, hostile, seed)
        tables += 2 * isinstance(attack, CollusionAttack)  # the true reports, and a copy with the forged ones
        poison = make_poison(attack, hostile, seed, data) if isinstance(attack, DataAttack) else None
    notices = (_describe_memory(experiment, problem, reports, tables),) if tables else ()
    return Defence(aggregation, poison, notices)


def estimate_cohort(experiment: Experiment, population: int) -> int:
    """Return the usual number of clients in a round."""
    match experiment.participation:
        case Everyone():
            return population
        case FixedSize(clients):
            return min(clients, population)
        case Independent(probability):
            return round(probability * population)
        case own:
            return len(np.asarray(own.cohort(population, experiment.seed, 0)))


def _reject_small_cohorts(mean: RobustRule, reports: int) -> None:
    if reports < mean.least_reports:
        kind = describe_mean(mean)["kind"]
        buckets = f" in {mean.least_rows} buckets of {mean.bucketing}" if mean.bucketing > 1 else ""
        raise UserError(
            f'server.mean = "{kind}" with these options needs at least {mean.least_reports} reports per round'
            f"{buckets}, got cohorts of {reports}; let more clients take part, or count on fewer hostile ones"
        )


def _describe_memory(experiment: Experiment, problem: Problem, reports: int, tables: int) -> str:
    templates: Any = make_templates(experiment.algorithm, problem.initial_params, problem.shapes)
    size = tables * count_table_bytes(templates.report, reports)
    return (
        f"all reports of a round are held in memory for the mean: {format_table_memory(size)} in each process for "
        f"{reports} reports of {sum(field.numel() for field in templates.report):,} numbers"
    )
