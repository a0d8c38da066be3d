"""An experiment as a site runs it: on the site's device, with the part of the evaluation that is the site's."""

from typing import Any

from fedcm.config.sections import EvaluationSection, Experiment, StopSection
from fedcm.federation.shares import SiteParts


def adapt_experiment(given: Experiment, device: str, parts: SiteParts) -> Experiment:
    """Return the experiment for a site.

    Args:
        given: The experiment.
        device: The site's device.
        parts: Which of the site's examples are for training, testing and validation.
    """
    engine = given.engine.model_copy(update={"device": device})
    evaluation = _choose_evaluation(given.evaluation, parts)
    stop = StopSection()  # the server stops the run
    return given.model_copy(update={"engine": engine, "evaluation": evaluation, "stop": stop})


def _choose_evaluation(given: EvaluationSection, parts: SiteParts) -> EvaluationSection:
    """Return what a site evaluates: all metrics on its validation data, the first one on its own test data."""
    changes: dict[str, Any] = {}
    if not len(parts.tests):
        changes |= {"clients": None, "personalise": None}
    if not len(parts.validation):
        changes |= {"metrics": given.metrics[:1] if given.metrics is not None and len(parts.tests) else None}
    return given.model_copy(update=changes)
