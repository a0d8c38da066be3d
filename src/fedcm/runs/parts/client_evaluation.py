"""Choose how single clients are evaluated."""

from fedcm.config.sections import Experiment
from fedcm.core.scoring.metric_set import MetricSet
from fedcm.data.federated import FederatedData, find_client_tests
from fedcm.errors import UserError
from fedcm.executors.client_tests import ClientEvaluation


def make_client_evaluation(experiment: Experiment, data: FederatedData, metrics: MetricSet) -> ClientEvaluation | None:
    """Return how single clients are evaluated; None if they have no test data of their own.

    Raises:
        UserError: If `evaluation.personalise` is given without such data.
    """
    epochs = experiment.evaluation.personalise
    if find_client_tests(data) is None:
        if epochs is not None:
            raise UserError(
                f"evaluation.personalise = {epochs} needs clients with test data of their own; set evaluation.clients, "
                "to 0.2 for example"
            )
        return None
    headline = MetricSet(metrics.members[:1], metrics.is_given)
    return ClientEvaluation(headline, data.classes is None and not metrics.is_given, epochs)
