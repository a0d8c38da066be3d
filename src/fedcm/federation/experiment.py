"""An experiment as a federation runs it: the settings that the server fixes, and the quorum."""

from math import ceil

from fedcm.algorithms.registry import get_algorithm_name
from fedcm.config.robustness import describe_exclusion_with_secure_aggregation
from fedcm.config.sections import FEDERATED_DATA, CheckpointSection, Experiment, FederationSection
from fedcm.core.algorithm import has_survey, is_decentralised
from fedcm.core.participation import FixedSize
from fedcm.data.work.amounts import UniformWork
from fedcm.errors import UserError
from fedcm.federation.private.rules import prepare_privacy

KEPT_STATES = 3  # counted states that every site keeps: the server may resume from an older checkpoint


def prepare_experiment(experiment: Experiment) -> Experiment:
    """Return the experiment with the settings that every federated run has.

    Data are at the sites, each process trains one client, and every round is saved before the next one begins. Sites
    rely on the last point: they keep only the states that the server can still ask for.

    Raises:
        UserError: If a federation cannot run the algorithm, or settings exclude each other.
    """
    name = get_algorithm_name(experiment.algorithm)
    if is_decentralised(experiment.algorithm):
        raise UserError(f"{name!r} has no server, and a federation has one; simulate it with `fedcm run`")
    if has_survey(experiment.algorithm):
        raise UserError(
            f"{name!r} needs two exchanges in every round, but a federation has one; simulate it with `fedcm run`"
        )
    reject_simulated_conditions(experiment)
    if experiment.algorithm.needs_all_clients and experiment.federation.quorum < 1:
        raise UserError(f"{name!r} must have every site in every round; set federation.quorum = 1")
    if experiment.federation.secure_aggregation:
        _reject_small_sums(experiment)
        _reject_comparisons(experiment.federation)
        if reason := describe_exclusion_with_secure_aggregation(experiment.server.mean):
            raise UserError(reason)
    engine = experiment.engine.model_copy(update={"stack": 1, "compile": "off", "device": "cpu"})
    prepared = experiment.model_copy(
        update={
            "data": experiment.data.model_copy(update={"source": FEDERATED_DATA}),
            "engine": engine.without_autotune(),
            "checkpoints": CheckpointSection(every=1, keep=min(experiment.checkpoints.keep, KEPT_STATES)),
        }
    )
    return prepare_privacy(prepared, compute_least_sites(experiment.federation))


def reject_simulated_conditions(experiment: Experiment) -> None:
    """Raise UserError if an experiment has conditions that only a simulation has."""
    if experiment.stragglers is not None:
        raise UserError(
            "a federation waits for real sites until federation.deadline, so [stragglers] must be left out; simulate "
            "it with `fedcm run`"
        )
    if experiment.attack is not None:
        raise UserError(
            "a federation has real sites, so [attack] must be left out; simulate hostile clients with `fedcm run`"
        )
    if experiment.availability is not None:
        raise UserError(
            "real sites come and go by themselves, so [availability] must be left out of a federation; simulate it "
            "with `fedcm run`"
        )
    for unit in ("epochs", "steps"):
        work = getattr(experiment.client, unit)
        if work is not None and not isinstance(work, int | UniformWork):
            raise UserError(
                f"client.{unit} must be a number or kind = 'uniform' in a federation, because sites do not have the "
                "files of an admin"
            )


def _reject_small_sums(experiment: Experiment) -> None:
    """Raise UserError if no round can have as many sites as secure aggregation needs."""
    sites, least = len(experiment.federation.sites), compute_least_sites(experiment.federation)
    chosen = experiment.participation
    if sites and least > sites:
        raise UserError(
            f"secure aggregation needs at least {least} sites in every sum (federation.threshold), but the run has "
            f"{sites}; add sites, or lower the threshold, which must be at least 2"
        )
    if sites and isinstance(chosen, FixedSize) and chosen.clients < least:
        raise UserError(
            f"secure aggregation needs at least {least} sites in every sum, but a round has {chosen.clients} "
            "(participation.clients); set federation.threshold, or let more sites take part"
        )


def _reject_comparisons(settings: FederationSection) -> None:
    """Raise UserError if the server would have to compare reports that secure aggregation hides from it."""
    for name, off in (("norm_ratio", 0), ("min_cosine", -1)):
        if getattr(settings, name) not in (None, off):
            raise UserError(
                f"federation.{name} compares single reports, which secure aggregation hides from the server; leave it "
                "out, and bound reports at the sites by federation.norm_bound"
            )


def compute_least_sites(settings: FederationSection) -> int:
    """Return the smallest number of sites whose reports may be summed by secure aggregation.

    By default more than two thirds of the run's sites, so that a server needs a third of them as accomplices to get two
    sums of one round.

    >>> compute_least_sites(FederationSection(sites=list("abcdef")))
    5
    """
    return settings.threshold or max(2 * len(settings.sites) // 3 + 1, 2)


def bound_examples(examples: int, settings: FederationSection) -> int:
    """Return the number of examples that a site counts for: at most `federation.max_examples`.

    >>> bound_examples(700, FederationSection(max_examples=600)), bound_examples(700, FederationSection())
    (600, 700)
    """
    return examples if settings.max_examples is None else min(examples, settings.max_examples)


def compute_quorum(sites: int, share: float) -> int:
    """Return how many of the sites must answer for a round to count.

    >>> compute_quorum(100, 0.07), compute_quorum(3, 0.5), compute_quorum(1, 0.1)
    (7, 2, 1)
    """
    return max(ceil(share * sites - 1e-9), 1)
