"""`fedcm advise`: suggest α and η_l from a short probe."""

import dataclasses
import json
import math
from typing import Annotated

import typer

from fedcm.cli import options
from fedcm.cli.session import print_failure, results_on_stdout
from fedcm.runs.progress import say
from fedcm.system.signals import StopSignals


def advise(
    experiment: options.ExperimentPath,
    settings: options.Settings = None,
    seed: options.Seed = None,
    data_dir: options.DataDir = None,
    seconds: Annotated[
        float,
        typer.Option(min=1, max=1e9, help="Approximate duration of the probe; each trial has at least ten rounds."),
    ] = 60,
    rounds: Annotated[
        int | None,
        typer.Option(min=2, help="Rounds per trial; by default as many as the time allows.", show_default=False),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Suggest α and η_l for FedCM from a short probe of an experiment, with reasons and figures.

    The probe tries three values of α with the experiment's client.lr (η_l), then the best α with a third and with three
    times that η_l. The trial with the smallest loss wins, and its α is scaled to the number of rounds of the run.
    Noise, dissimilarity, drift and smoothness are measured for the warnings. Nothing is written.
    docs/guides/diagnosis.md says how often the advice was right.

    Example: `fedcm advise cifar10-lenet --set rounds=500`
    """
    from fedcm.advise.advice import advise as make_advice
    from fedcm.advise.probe import TRIALS, count_affordable_rounds, probe, profile_experiment
    from fedcm.algorithms.fedcm import FedCM
    from fedcm.cli.terminal.advice import print_advice, show_probe_progress
    from fedcm.config.experiment import load_experiment
    from fedcm.errors import Diverged, Stopped, UserError
    from fedcm.executors.process_group import to_worker_failure
    from fedcm.runs.build import build

    with results_on_stdout(as_json), StopSignals() as stop_requested:
        overrides = options.list_overrides(settings, seed)
        loaded = load_experiment(experiment, overrides)
        own_alpha = loaded.algorithm.alpha if isinstance(loaded.algorithm, FedCM) else None
        if own_alpha is None:  # FedCM does not have the settings of another algorithm
            others = [override for override in overrides if not override.startswith("algorithm.")]
            loaded = load_experiment(experiment, others, "fedcm")
        setup = build(loaded.without_autotune(), data_dir)
        profile = profile_experiment(setup, own_alpha)
        rounds = min(rounds or count_affordable_rounds(setup, seconds), profile.rounds)
        try:
            with show_probe_progress(TRIALS * rounds) as advance:
                result = probe(setup, rounds, advance, stop_requested)
        except Stopped:
            say("stopped; nothing was written")
            raise typer.Exit(130) from None
        except Diverged as reason:
            raise UserError(f"{reason}; lower client.lr, or clip gradients with client.clip") from None
        except UserError:
            raise
        except Exception as error:
            print_failure(to_worker_failure(error, "the probe failed"))
            raise typer.Exit(1) from None
        advice = make_advice(profile, result)
    if as_json:
        trials = [
            trial._asdict() | {"level": trial.level if math.isfinite(trial.level) else None} for trial in result.trials
        ]
        probed = result._asdict() | {"trials": trials}
        table = dataclasses.asdict(advice) | {"setting": profile._asdict(), "probe": probed}
        print(json.dumps(table, indent=2, allow_nan=False))
    else:
        print_advice(advice, profile, result)
