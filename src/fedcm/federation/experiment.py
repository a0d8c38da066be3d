"""An experiment as a federation runs it: the settings that the server fixes, and the quorum."""

from math import ceil

from fedcm.algorithms.registry import get_algorithm_name
from fedcm.config.sections import CheckpointSection, Experiment
from fedcm.core.algorithm import has_survey, is_decentralised
from fedcm.errors import UserError

DATA_SOURCE = "federation"  # data.source of a federated run: the data stay at the sites
KEPT_STATES = 3  # counted states that a site keeps: the server may resume from an older checkpoint


def prepare_experiment(experiment: Experiment) -> Experiment:
    """Return the experiment with the settings that every federated run has.

    Data are at the sites, each process trains one client, and every round is saved before the next one begins. Sites
    rely on the last point: they keep only the states that the server can still ask for.

    Raises:
        UserError: If a federation cannot run the algorithm.
    """
    name = get_algorithm_name(experiment.algorithm)
    if is_decentralised(experiment.algorithm):
        raise UserError(f"{name!r} has no server, and a federation has one; simulate it with `fedcm run`")
    if has_survey(experiment.algorithm):
        raise UserError(
            f"{name!r} needs two exchanges in every round, but a federation has one; simulate it with `fedcm run`"
        )
    if experiment.data.validation is not None:
        raise UserError(
            f"data.validation cannot be a share ({experiment.data.validation}) of data that stay at the sites; name "
            'the server\'s own validation data in its server.toml: [validation] source = "validation.npz"'
        )
    for name in ("clients", "personalise"):
        if getattr(experiment.evaluation, name) is not None:
            raise UserError(
                f"a federation evaluates at its server, so evaluation.{name} must be left out, got "
                f"{getattr(experiment.evaluation, name)}; simulate it with `fedcm run`"
            )
    if experiment.algorithm.needs_all_clients and experiment.federation.quorum < 1:
        raise UserError(f"{name!r} must have every site in every round; set federation.quorum = 1")
    engine = experiment.engine.model_copy(update={"stack": 1, "compile": "off", "device": "cpu"})
    return experiment.model_copy(
        update={
            "data": experiment.data.model_copy(update={"source": DATA_SOURCE}),
            "engine": engine.without_autotune(),
            "checkpoints": CheckpointSection(every=1, keep=min(experiment.checkpoints.keep, KEPT_STATES)),
        }
    )


def compute_quorum(sites: int, share: float) -> int:
    """Return how many of the sites must answer for a round to count.

    >>> compute_quorum(100, 0.07), compute_quorum(3, 0.5), compute_quorum(1, 0.1)
    (7, 2, 1)
    """
    return max(ceil(share * sites - 1e-9), 1)
