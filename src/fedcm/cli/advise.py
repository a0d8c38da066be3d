"""`fedcm advise`: suggest α and η_l from a short probe."""

import json
from typing import Annotated

import typer

from fedcm.api.progress import say
from fedcm.cli import options
from fedcm.cli.session import keep_stdout_for_results, print_failure
from fedcm.system.signals import StopSignals


def advise(
    experiment: options.ExperimentPath,
    overrides: options.SettingOverrides = None,
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
    times that η_l. The trial with the smallest loss wins, and its α is scaled to the number of rounds of the run. The
    loss is on the validation data if the experiment has any (`data.validation`), else on the training data.
    Noise, dissimilarity, drift and smoothness are measured for the warnings. Nothing is written.
    docs/guides/diagnosis.md says how often the advice was right.

    Example: `fedcm advise cifar10-lenet --set rounds=500`
    """
    from fedcm.api.advice import advise as advise_on_experiment
    from fedcm.cli.terminal.advice import print_advice
    from fedcm.errors import Stopped, TrainingFailed

    with keep_stdout_for_results(as_json), StopSignals() as stop_requested:
        try:
            advice = advise_on_experiment(
                experiment,
                overrides=options.collect_overrides(overrides, seed),
                seconds=seconds,
                rounds=rounds,
                data_dir=data_dir,
                progress=True,
                stop_requested=stop_requested,
            )
        except Stopped:
            say("stopped; nothing was written")
            raise typer.Exit(130) from None
        except TrainingFailed as failure:
            print_failure(failure)
            raise typer.Exit(1) from None
    if as_json:
        print(json.dumps(advice.to_table(), indent=2, allow_nan=False))
    else:
        print_advice(advice)
