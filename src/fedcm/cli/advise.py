"""`fedcm advise`: a short probe, and what it suggests."""

import dataclasses
import json
import math
from typing import Annotated

import typer

from fedcm.cli import options
from fedcm.cli.run_commands import only_results_on_stdout, say_failure
from fedcm.runs.progress import say
from fedcm.system.signals import StopSignals


def advise(
    experiment: options.ExperimentPath,
    settings: options.Settings = None,
    seed: options.Seed = None,
    data_dir: options.DataDir = None,
    seconds: Annotated[
        float, typer.Option(min=1, max=1e9, help="How long the probe may take, about; ten rounds a trial at least.")
    ] = 60,
    rounds: Annotated[
        int | None, typer.Option(min=2, help="Rounds of a trial; as many as the time allows unless given.")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Suggest α and η_l for FedCM from a short probe of an experiment, with the reason and the figures behind it.

    FedCM is tried with three α at the experiment's client.lr, and with the best of them at a third and three times it;
    the least loss wins, and its α is brought from the probe's horizon to the run's. Noise, dissimilarity, drift and
    smoothness are measured there, for the warnings. Nothing is written. docs/guides/diagnosis.md tells how often it was
    right.

    Example: `fedcm advise experiments/cifar10-lenet.toml --set rounds=500`
    """
    from fedcm.advise.advice import advise as advised
    from fedcm.advise.probe import TRIALS, count_affordable_rounds, describe_setting, probe
    from fedcm.algorithms.fedcm import FedCM
    from fedcm.cli.terminal.advice import advice_shown, probing
    from fedcm.config.experiment import load_experiment
    from fedcm.errors import Diverged, Stopped, UserError
    from fedcm.executors.process_group import to_worker_failure
    from fedcm.runs.assembly import assemble
    from fedcm.sweeps.estimate import without_trial

    with only_results_on_stdout(as_json), StopSignals() as stopping:
        chosen = options.changes(settings, seed)
        asked = load_experiment(experiment, chosen)
        own = asked.algorithm.alpha if isinstance(asked.algorithm, FedCM) else None
        if own is None:  # with the settings that FedCM has, not those of the algorithm that is there
            asked = load_experiment(experiment, [each for each in chosen if not each.startswith("algorithm.")], "fedcm")
        assembly = assemble(without_trial(asked), data_dir)
        setting = describe_setting(assembly, own)
        rounds = min(rounds or count_affordable_rounds(assembly, seconds), setting.rounds)
        try:
            with probing(TRIALS * rounds) as advance:
                seen = probe(assembly, rounds, advance, stopping)
        except Stopped:
            say("stopped; nothing was written")
            raise typer.Exit(130) from None
        except Diverged as reason:
            raise UserError(f"{reason}; lower client.lr, or clip gradients with client.clip") from None
        except UserError:
            raise
        except Exception as error:
            say_failure(to_worker_failure(error, "the probe failed"))
            raise typer.Exit(1) from None
        advice = advised(setting, seen)
    if as_json:
        trials = [
            trial._asdict() | {"level": trial.level if math.isfinite(trial.level) else None} for trial in seen.trials
        ]
        probed = seen._asdict() | {"trials": trials}
        told = dataclasses.asdict(advice) | {"setting": setting._asdict(), "probe": probed}
        print(json.dumps(told, indent=2, allow_nan=False))
    else:
        advice_shown(advice, setting, seen)
