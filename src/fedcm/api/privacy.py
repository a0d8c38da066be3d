"""Plan the privacy of an experiment in Python."""

from fedcm.api.arguments import AnyPath, Overrides, format_overrides
from fedcm.api.experiments import check_experiment
from fedcm.config.bundled import find_experiment
from fedcm.config.experiment import read_experiment
from fedcm.config.overrides import apply_overrides, read_table
from fedcm.config.sections import Experiment
from fedcm.errors import UserError
from fedcm.privacy.planning import PrivacyPlan, make_privacy_plan
from fedcm.privacy.settings import reject_unfit_privacy


def plan_privacy(experiment: Experiment | AnyPath, *, overrides: Overrides = ()) -> PrivacyPlan:
    """Compute ε of an experiment against rounds, noise and participation. Nothing is trained and no data are read.

    Args:
        experiment: An experiment, a TOML file, or the name of a bundled experiment. Its `[privacy]` may also be given
            by overrides.
        overrides: Settings to change, if a file or a name is given.

    Returns:
        The noise that the budget needs, and tables of ε.

    Raises:
        UserError: If the experiment is not private, or cannot be.

    >>> import fedcm
    >>> changes = {"privacy.noise_multiplier": 5.0, "privacy.clip": 0.5, "client.steps": 5}
    >>> changes |= {"participation.kind": "everyone", "rounds": 20}
    >>> round(fedcm.plan_privacy("family", overrides=changes).epsilon, 2)
    4.09
    """
    if isinstance(experiment, Experiment):
        if overrides:
            raise UserError("overrides apply to a file or a name; change an Experiment with model_copy(update={…})")
        check_experiment(experiment)
    else:
        table = {key: value for key, value in read_table(find_experiment(experiment)).items() if key != "grid"}
        experiment = read_experiment(apply_overrides(table, format_overrides(overrides)))
    if not experiment.privacy.is_on:
        raise UserError(
            "privacy.epsilon or privacy.noise_multiplier must be given, with privacy.clip, and neither is; try "
            "`--set privacy.epsilon=8 --set privacy.clip=0.5`"
        )
    reject_unfit_privacy(experiment)
    return make_privacy_plan(experiment)
