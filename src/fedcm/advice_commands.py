"""`fedcm advise`: a short probe, and what it suggests."""

import dataclasses
import json
from typing import Annotated

import typer

from fedcm import options
from fedcm.progress import say
from fedcm.run_commands import only_results_on_stdout
from fedcm.signals import StopSignals


def advise(
    experiment: options.ExperimentPath,
    settings: options.Settings = None,
    seed: options.Seed = None,
    data_dir: options.DataDir = None,
    rounds: Annotated[int, typer.Option(min=1, max=1000, help="Rounds of the probe, at each of three rates.")] = 10,
    as_json: options.AsJson = False,
) -> None:
    """Suggest α and η_l for FedCM from a short probe of an experiment, with the reason and the figures behind it.

    It trains FedAvg for a few rounds at a third, once and three times the experiment's client.lr, and measures noise,
    dissimilarity and the gradient. Nothing is written. A rule of thumb: docs/theory.md tells where it was right.

    Example: `fedcm advise experiments/cifar10-lenet.toml --set rounds=500`
    """
    from fedcm.advice import advise as advised
    from fedcm.advice import probe, setting_of
    from fedcm.assembly import assemble
    from fedcm.executors.executor import Diverged, Stopped
    from fedcm.experiment import load
    from fedcm.planning import without_trial
    from fedcm.refusal import Refused
    from fedcm.report.advice import advice_shown, probing

    with only_results_on_stdout(as_json), StopSignals() as stopping:
        assembly = assemble(without_trial(load(experiment, options.changes(settings, seed))), data_dir)
        setting = setting_of(assembly)
        try:
            with probing(3 * rounds) as shown:

                def passing(what: str, done: int, all: int) -> None:
                    shown(done)
                    if stopping():
                        raise Stopped

                seen = probe(assembly, rounds, passing)
        except Stopped:
            say("stopped; nothing was written")
            raise typer.Exit(130) from None
        except Diverged as reason:
            raise Refused(f"{reason}; lower client.lr, or clip gradients with client.clip") from None
        advice = advised(setting, seen)
    if as_json:
        found = dataclasses.asdict(advice) | {"setting": setting._asdict(), "measured": seen.found}
        losses = {f"{rate:g}": loss if loss < float("inf") else None for rate, loss in seen.losses.items()}
        print(json.dumps(found | {"smoothness": seen.smoothness, "losses": losses}, indent=2))
    else:
        advice_shown(advice, setting, seen)
