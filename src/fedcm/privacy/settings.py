"""From the section `[privacy]` of an experiment to the private mean of its reports and the budget of its rounds."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from fedcm.algorithms.registry import get_algorithm_name
from fedcm.config.robustness import describe_exclusion_with_privacy
from fedcm.config.sections import FEDERATED_DATA, Experiment, PrivacySection
from fedcm.core.aggregation import PrivateMean
from fedcm.core.algorithm import get_message_types, has_survey, is_decentralised
from fedcm.core.local.step_factors import StepFactors
from fedcm.core.privacy.budget import DEFAULT_DELTA, PrivacyBudget
from fedcm.core.privacy.keystream import derive_key
from fedcm.core.privacy.quantile import ClipQuantile
from fedcm.errors import UserError
from fedcm.privacy.accountant import Accountant, Sampling, calibrate_noise, count_expected_cohort

AnyExperiment = TypeVar("AnyExperiment", bound=Experiment)


def reject_unfit_privacy(experiment: Experiment) -> None:
    """Raise UserError if an experiment asks for privacy and for something that excludes it."""
    if not experiment.privacy.is_on:
        return
    name = get_algorithm_name(experiment.algorithm)
    if is_decentralised(experiment.algorithm):
        raise UserError(f"privacy needs a server that adds noise, and {name!r} has none; choose another algorithm")
    if has_survey(experiment.algorithm):
        raise UserError(f"privacy needs one exchange in a round, and {name!r} has two; choose another algorithm")
    if experiment.server.weights != "clients":
        raise UserError('privacy needs clients of equal weight; set server.weights = "clients"')
    if not isinstance(experiment.client.steps, int):
        raise UserError(
            "privacy needs the same number of local steps at every client, whatever its data; give it as client.steps "
            "in place of epochs, such as client.steps = 5"
        )
    for section in ("availability", "stragglers"):
        if getattr(experiment, section) is not None:
            raise UserError(
                f"[{section}] changes who takes part in a way that the privacy accountant does not know; leave it out"
            )
    if reason := describe_exclusion_with_privacy(experiment.server.mean):
        raise UserError(reason)
    if experiment.attack is not None:
        raise UserError(
            "[privacy] holds if every client clips its own report, which hostile clients would not do; leave [attack] "
            "or [privacy] out"
        )
    Sampling.of(experiment.participation)
    _read_clip(experiment)


def fill_noise(experiment: AnyExperiment) -> AnyExperiment:
    """Return the experiment with the noise that its budget needs, if it gives the budget alone."""
    privacy = experiment.privacy
    if privacy.epsilon is None or privacy.noise_multiplier is not None:
        return experiment
    noise = calibrate_noise(get_sampling(experiment), privacy.epsilon, get_delta(privacy), experiment.rounds)
    return experiment.model_copy(update={"privacy": privacy.model_copy(update={"noise_multiplier": noise})})


def get_sampling(experiment: Experiment) -> Sampling:
    """Return how clients are drawn, as far as privacy depends on it.

    In a federation everybody knows who takes part in a round: it follows from the seed, which all parties have. So
    drawing the sites amplifies nothing.
    """
    sampling = Sampling.of(experiment.participation)
    return replace(sampling, probability=1.0) if experiment.data.source == FEDERATED_DATA else sampling


def get_delta(privacy: PrivacySection) -> float:
    """Return δ."""
    return DEFAULT_DELTA if privacy.delta is None else privacy.delta


def make_accountant(experiment: Experiment) -> Accountant:
    """Return the accountant of an experiment whose noise is known."""
    privacy = experiment.privacy
    assert privacy.noise_multiplier is not None
    return Accountant(get_sampling(experiment), privacy.noise_multiplier, get_delta(privacy))


def make_budget(experiment: Experiment, population: int) -> PrivacyBudget:
    """Return what the rounds of an experiment cost.

    Args:
        experiment: The experiment, with its noise.
        population: The number of clients.

    Raises:
        UserError: If δ is too large for the population, or the budget does not pay for one round.
    """
    privacy, accountant = experiment.privacy, make_accountant(experiment)
    if get_delta(privacy) * population >= 1:
        raise UserError(
            f"privacy.delta must be below 1 / {population}, one over the number of clients, got "
            f"{get_delta(privacy):g}; set it to {0.1 / population:.0e}, for example"
        )
    rounds = None
    if privacy.epsilon is not None:
        rounds = accountant.count_rounds(privacy.epsilon, experiment.rounds + 1)
        if not rounds:
            raise UserError(
                f"privacy.epsilon = {privacy.epsilon:g} does not pay for one round with noise_multiplier = "
                f"{privacy.noise_multiplier:g}, which costs {accountant.compute_epsilon(1):.4g}; raise one of them"
            )
    horizon = experiment.rounds if rounds is None else min(rounds, experiment.rounds)
    quantile = None
    if privacy.clip_quantile is not None:
        quantile = ClipQuantile(privacy.clip_quantile, count_expected_cohort(experiment.participation, population))
        if quantile.split_noise(accountant.noise_multiplier) is None:
            raise UserError(
                f"privacy.clip_quantile needs an expected cohort above {10 * accountant.noise_multiplier:.0f} clients "
                f"with noise_multiplier = {accountant.noise_multiplier:g}, got {quantile.expected_cohort:g}; raise the "
                "participation or leave clip_quantile out"
            )
    return PrivacyBudget(lambda count: accountant.bound_epsilon(count, horizon), privacy.epsilon, rounds, quantile)


def make_private_mean(experiment: Experiment, population: int, budget: PrivacyBudget) -> PrivateMean:
    """Return the private mean of an experiment; its key follows from the seed."""
    noise, client = experiment.privacy.noise_multiplier, experiment.client
    assert noise is not None
    assert isinstance(client.steps, int)
    factors = None if client.step_schedule is None else StepFactors(client.step_schedule)
    return PrivateMean(
        experiment.algorithm,
        noise,
        _read_clip(experiment),
        count_expected_cohort(experiment.participation, population),
        float(client.steps) if factors is None else float(factors.sum(client.steps)),
        derive_key(experiment.seed),
        budget.quantile,
    )


def _read_clip(experiment: Experiment) -> tuple[float, ...]:
    """Return the threshold of each field of a report."""
    clip = experiment.privacy.clip
    fields = get_message_types(type(experiment.algorithm)).report._fields
    if not isinstance(clip, Mapping):
        assert clip is not None
        return (float(clip),) * len(fields)
    if set(clip) != set(fields):
        name = get_algorithm_name(experiment.algorithm)
        raise UserError(
            f"privacy.clip must be one number, or have one for each field that {name!r} reports ({', '.join(fields)}), "
            f"got {', '.join(clip)}"
        )
    return tuple(float(clip[field]) for field in fields)
