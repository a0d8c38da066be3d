"""Before a training, in Python: advice on α and η_l of FedCM from a short probe, and what privacy costs."""

from fedcm.advice.probe import TRIALS, count_affordable_rounds, probe, profile_experiment
from fedcm.advice.suggestion import Advice, suggest_settings
from fedcm.algorithms.client_momentum.fedcm import FedCM
from fedcm.api.arguments import AnyPath, Overrides, format_overrides, to_count, to_optional_path
from fedcm.api.experiments import check_experiment, get_builder
from fedcm.api.progress import show_probe_progress
from fedcm.config.bundled import find_experiment
from fedcm.config.experiment import load_experiment_file, read_experiment
from fedcm.config.overrides import apply_overrides, read_table
from fedcm.config.sections import Experiment
from fedcm.errors import Diverged, Stopped, UserError
from fedcm.executors.process_group import to_training_failure
from fedcm.privacy.planning import PrivacyPlan, make_privacy_plan
from fedcm.privacy.settings import reject_unfit_privacy
from fedcm.system.callbacks import StopRequested
from fedcm.system.signals import handle_ctrl_c


def advise(
    experiment: Experiment | AnyPath,
    *,
    overrides: Overrides = (),
    seconds: float = 60.0,
    rounds: int | None = None,
    data_dir: AnyPath | None = None,
    progress: bool = False,
    stop_requested: StopRequested | None = None,
) -> Advice:
    """Suggest α and η_l for FedCM from a short probe of an experiment. Nothing is written.

    The probe tries three values of α with the experiment's client.lr (η_l), then the best α with a third and with three
    times that η_l. The trial with the smallest loss wins, and its α is scaled to the number of rounds of the run. The
    loss is on the validation data if the experiment has any (`data.validation`), else on the training data.

    Args:
        experiment: An experiment, a TOML file, or the name of a bundled experiment. Its algorithm is replaced by FedCM.
        overrides: Settings to change, if a file or a name is given.
        seconds: Approximate duration of the probe; each trial has at least ten rounds.
        rounds: Rounds per trial; by default as many as the time allows.
        data_dir: Folder of prepared datasets.
        progress: Show a progress bar on stderr.
        stop_requested: Called before every client; the probe stops when it returns True. By default Ctrl-C stops it.

    Returns:
        The suggested values, with reasons, warnings and the measured figures.

    Raises:
        UserError: If the experiment cannot work, or FedCM diverges with every learning rate that is tried.
        TrainingFailed: If your own code failed.
        Stopped: If `stop_requested` returned True.
        KeyboardInterrupt: If Ctrl-C stopped the probe.

    >>> import fedcm
    >>> advice = fedcm.advise("demo", rounds=2)
    >>> [trial.alpha for trial in advice.probe.trials][:3]
    [1.0, 0.3, 0.1]
    >>> changes = {"algorithm.alpha": advice.alpha, "client.lr": advice.client_lr}
    """
    if rounds is not None:
        rounds = to_count("rounds", rounds)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise UserError(f"seconds must be a number above 0, got {seconds!r}")
    chosen, own_alpha = _choose_fedcm(experiment, overrides)
    setup = get_builder(chosen)(chosen.without_autotune(), to_optional_path("data_dir", data_dir))
    profile = profile_experiment(setup, own_alpha)
    with handle_ctrl_c(stop_requested) as is_stopping:
        rounds = min(rounds or count_affordable_rounds(setup, seconds), profile.rounds)
        try:
            with show_probe_progress(TRIALS * rounds, hidden=not progress) as advance:
                result = probe(setup, rounds, advance, is_stopping)
        except Stopped:
            if stop_requested is None:
                raise KeyboardInterrupt from None
            raise
        except Diverged as reason:
            raise UserError(f"{reason}; lower client.lr, or clip gradients with client.clip") from None
        except UserError:
            raise
        except Exception as error:
            raise to_training_failure(error, "the probe failed") from None
    return suggest_settings(profile, result)


def _choose_fedcm(experiment: Experiment | AnyPath, overrides: Overrides) -> tuple[Experiment, float | None]:
    """Return the experiment with FedCM as its algorithm, and its α if FedCM is its own algorithm."""
    if isinstance(experiment, Experiment):
        if overrides:
            raise UserError("overrides apply to a file or a name; change an Experiment with model_copy(update={…})")
        check_experiment(experiment)
        if isinstance(experiment.algorithm, FedCM):
            return experiment, experiment.algorithm.alpha
        return experiment.model_copy(update={"algorithm": FedCM()}), None
    path, changes = find_experiment(experiment), format_overrides(overrides)
    loaded = load_experiment_file(path, changes)
    if isinstance(loaded.algorithm, FedCM):
        return loaded, loaded.algorithm.alpha
    shared = [change for change in changes if not change.startswith("algorithm.")]  # FedCM has other settings
    return load_experiment_file(path, shared, "fedcm"), None


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
    3.85
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
