"""The file of initial weights of an experiment. It is not sent: the server and every site have a copy of their own."""

from pathlib import Path

from fedcm.config.sections import Experiment
from fedcm.errors import UserError
from fedcm.federation.kit import SERVER_FILE, SITE_FILE
from fedcm.federation.settings import ServerSettings, SiteSettings
from fedcm.system.checksum import compute_file_sha256


def use_own_weights(experiment: Experiment, kit: Path, settings: SiteSettings | ServerSettings) -> Experiment:
    """Return the experiment with the kit's own file of initial weights, if the experiment starts from a file.

    The file is not sent, and a path in an experiment would name any file of the machine.

    Raises:
        UserError: If the settings name no file.
    """
    if experiment.model.weights is None:
        return experiment
    if settings.model.weights is None:
        file = SITE_FILE if isinstance(settings, SiteSettings) else SERVER_FILE
        raise UserError(
            "the experiment starts from a file of weights (model.weights), which is not sent; copy it to this machine "
            f"and name it as weights under [model] in {file}"
        )
    own = experiment.model.model_copy(update={"weights": str((kit / settings.model.weights).absolute())})
    return experiment.model_copy(update={"model": own})


def hash_weights(experiment: Experiment) -> str | None:
    """Return the sha256 of the experiment's file of initial weights; None if it has none.

    Raises:
        UserError: If the file cannot be read.
    """
    if experiment.model.weights is None:
        return None
    try:
        return compute_file_sha256(Path(experiment.model.weights))
    except OSError as error:
        raise UserError(f"the file of weights cannot be read: {error}") from error
