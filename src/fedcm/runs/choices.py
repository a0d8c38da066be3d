"""By which metric a run chooses: its best model, and when it ends early. Never by the test data."""

from fedcm.config.sections import StopSection
from fedcm.core.scoring.metric_set import MetricSet
from fedcm.core.stopping import TRAINING_LOSS, StopRule, WatchedMetric
from fedcm.data.federated import FederatedData
from fedcm.errors import UserError, suggest

_VALIDATION = "validation_"


def choose_validation_metric(metrics: MetricSet, data: FederatedData) -> WatchedMetric | None:
    """Return the headline metric on the validation data; None if there are none.

    Without metrics of its own, a regression has only its loss.
    """
    if not data.validation_size:
        return None
    if data.classes is None and not metrics.is_given:
        return WatchedMetric(f"{_VALIDATION}loss", higher_is_better=False)
    return WatchedMetric(f"{_VALIDATION}{metrics.headline}", metrics.traits[metrics.headline].higher_is_better)


def make_stop_rule(stop: StopSection, metrics: MetricSet, data: FederatedData, every: int) -> StopRule | None:
    """Return the rule by which a run ends early; None if the experiment has none.

    Args:
        stop: The section `[stop]`.
        metrics: The metrics of the evaluations.
        data: The data.
        every: Rounds between evaluations.

    Raises:
        UserError: If the metric is unknown or one of the test data, or there are no validation data.
    """
    if stop.patience is None and stop.target is None:
        return None
    watched = _find_metric(stop.metric, metrics, data)
    return StopRule(watched, stop.patience, stop.min_delta or 0.0, stop.target, every)


def _find_metric(name: str | None, metrics: MetricSet, data: FederatedData) -> WatchedMetric:
    if name == TRAINING_LOSS:
        return WatchedMetric(TRAINING_LOSS, higher_is_better=False)
    if name is not None and name.startswith("test_"):
        raise UserError(
            f"stop.metric must not be a metric of the test data, on which no choice is made, got {name!r}; hold back "
            f"validation data with data.validation and use {_VALIDATION}{name.removeprefix('test_')}"
        )
    chosen = choose_validation_metric(metrics, data)
    if chosen is None:
        raise UserError(
            f"stop.metric = {(name or _VALIDATION + metrics.headline)!r} needs validation data, and there are none; "
            'hold some back with data.validation = 0.1, or use stop.metric = "loss", the training loss'
        )
    known = {_VALIDATION + key: traits.higher_is_better for key, traits in metrics.traits.items()}
    known |= {f"{_VALIDATION}loss": False}
    if name is None:
        return chosen
    if name not in known:
        raise UserError(f"there is no metric {name!r} to stop by; {suggest(name, [*known, TRAINING_LOSS])}")
    return WatchedMetric(name, known[name])
