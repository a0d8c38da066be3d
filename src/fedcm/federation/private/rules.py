"""What a private federation excludes, and the settings that it fixes.

Everything that leaves a site must be a clipped report, or must not depend on its data. So sites send no losses, no
scores and no sums for a normalisation, and no report decides whether another one counts.
"""

from fedcm.config.sections import Experiment, FederationSection
from fedcm.core.privacy.noise_shares import compute_least_noise
from fedcm.errors import UserError
from fedcm.privacy.settings import fill_noise, reject_unfit_privacy


def prepare_privacy(experiment: Experiment, least: int) -> Experiment:
    """Return a private experiment with its noise and the kind of its key.

    The server's key is a secret in the run's folder. With secure aggregation each site has a key of its own, and the
    server has none.

    Args:
        experiment: The experiment, as far as a federation has prepared it.
        least: The fewest sites in a sum of secure aggregation.

    Raises:
        UserError: If a setting excludes privacy.
    """
    if not experiment.privacy.is_on:
        if experiment.federation.colluding is not None:
            raise UserError(
                "federation.colluding says whose noise does not count, but there is no noise without [privacy]; leave "
                "it out"
            )
        return experiment
    reject_unfit_privacy(experiment)
    is_secret = None if experiment.federation.secure_aggregation else True
    if experiment.privacy.secret is False:
        raise UserError(
            "the noise of a federation must have a secret key, because everybody knows the seed; leave privacy.secret "
            "out"
        )
    privacy = experiment.privacy.model_copy(update={"secret": is_secret})
    experiment = fill_noise(experiment.model_copy(update={"privacy": privacy}))
    reject_leaks(experiment, least)
    return experiment


def reject_leaks(experiment: Experiment, least: int) -> None:
    """Raise UserError if a private experiment would reveal more than its noisy sums. Sites call this, too.

    Args:
        experiment: The experiment, with its noise.
        least: The fewest sites in a sum of secure aggregation.
    """
    if not experiment.privacy.is_on:
        return
    settings = experiment.federation
    if experiment.privacy.clip_quantile is not None:
        raise UserError(
            "privacy.clip_quantile counts the reports within the thresholds, which needs more clients than a "
            "federation has sites; leave it out and give privacy.clip"
        )
    for name, off, reason in (
        ("norm_ratio", 0, "compares a report with those of other sites"),
        ("min_cosine", -1, "compares a report with those of other sites"),
        ("norm_bound", None, "would show which report is long"),
    ):
        if getattr(settings, name) not in (None, off):
            raise UserError(f"privacy.clip bounds every report, and federation.{name} {reason}; leave {name} out")
    if settings.downlink != "exact":
        raise UserError(
            "privacy clips the part of a report that the broadcast does not determine, so server and sites must have "
            'the same broadcast; set federation.downlink = "exact"'
        )
    for name, given in (
        ("evaluation.clients", experiment.evaluation.clients),
        ("data.validation", experiment.data.validation),
    ):
        if given is not None:
            raise UserError(
                f"[privacy] protects what sites report, and {name} reveals scores on their data without noise; leave "
                "it out, and evaluate on data of the server"
            )
    if experiment.stop.metric == "loss":
        raise UserError(
            'the sites of a private federation send no losses, so stop.metric cannot be "loss"; stop by validation '
            "data of the server"
        )
    if settings.secure_aggregation:
        _reject_weak_sums(experiment, least)


def count_colluding(settings: FederationSection) -> int:
    """Return how many sites of a sum may know or reveal their share of the noise.

    One by default: every site sees all models and knows its own share, which protects no other site against it.
    """
    return 1 if settings.colluding is None else settings.colluding


def _reject_weak_sums(experiment: Experiment, least: int) -> None:
    """Raise UserError if the shares of the noise in a sum may be too small, or a round may have two sums."""
    settings, noise = experiment.federation, experiment.privacy.noise_multiplier
    sites, colluding = len(settings.sites), count_colluding(settings)
    if colluding >= least:
        raise UserError(
            f"federation.colluding must be below {least}, the fewest sites in a sum (federation.threshold), because "
            f"only the noise of the other sites counts, got {colluding}"
        )
    if 2 * least <= sites + colluding:
        raise UserError(
            f"with [privacy], federation.threshold must be above {(sites + colluding) / 2:g}, half of {sites} sites "
            f"and {colluding} colluding, so that no round has two sums over different sites, got {least}; raise it, or "
            "lower federation.colluding"
        )
    if noise is not None and noise < compute_least_noise(least - colluding):
        raise UserError(
            f"privacy.noise_multiplier must be at least {compute_least_noise(least - colluding):.2g} with shares of "
            f"{least - colluding} sites, so that each share is many steps of the grid, got {noise:g}"
        )
