"""Read attacks, and reject robust means and attacks that do not fit the other settings."""

from collections.abc import Mapping
from typing import Any

from fedcm.algorithms.registry import get_algorithm_name
from fedcm.config.choices import describe_mean
from fedcm.config.schema import read_choice
from fedcm.config.sections import Experiment
from fedcm.core.aggregation.robust import RobustRule
from fedcm.core.algorithm import is_decentralised
from fedcm.core.attacks import ATTACKS, Attack
from fedcm.errors import UserError


def read_attack(table: Any) -> Attack | None:
    """Read `[attack]`; None if there is none."""
    if table is None or isinstance(table, Attack):
        return table
    if not isinstance(table, Mapping):
        raise UserError(f'attack must be a table such as {{kind = "sign-flip", clients = 0.2}}, got {table!r}')
    return read_choice(ATTACKS, table, "kind", "attack")


def reject_robustness(experiment: Experiment) -> None:
    """Raise UserError if a robust mean or an attack does not fit the algorithm or the weights."""
    mean, name = experiment.server.mean, get_algorithm_name(experiment.algorithm)
    if isinstance(mean, RobustRule):
        kind = describe_mean(mean)["kind"]
        if is_decentralised(experiment.algorithm):
            raise UserError(
                f'{name!r} has no server, which would average robustly, got server.mean = "{kind}"; leave it out'
            )
        equal = not mean.allows_weights or mean.bucketing > 1
        if equal and experiment.server.weights == "examples":
            raise UserError(
                f'server.mean = "{kind}" counts every report once, because numbers of examples are the clients\' own '
                'claims; set server.weights = "clients"'
            )
    if experiment.attack is not None and is_decentralised(experiment.algorithm):
        raise UserError(f"[attack] needs an algorithm with a server, to which clients report, got {name!r}")


def describe_exclusion_with_privacy(mean: Any) -> str | None:
    """Return why a mean excludes differential privacy; None if it does not.

    The noise of differential privacy is calibrated to a sum of clipped reports, which no robust mean is.
    """
    if not isinstance(mean, RobustRule):
        return None
    kind = describe_mean(mean)["kind"]
    return (
        f'[privacy] adds noise to a sum of clipped reports, which server.mean = "{kind}" is not; set server.mean = '
        '"plain" or leave [privacy] out'
    )


def describe_exclusion_with_secure_aggregation(mean: Any) -> str | None:
    """Return why a mean excludes secure aggregation; None if it does not."""
    if not isinstance(mean, RobustRule):
        return None
    kind = describe_mean(mean)["kind"]
    return (
        f'with secure aggregation the server cannot see single reports, so server.mean = "{kind}" '
        'cannot be computed; set server.mean = "plain" or federation.secure_aggregation = false'
    )
