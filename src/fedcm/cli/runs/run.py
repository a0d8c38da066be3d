"""`fedcm run`: run an experiment."""

from pathlib import Path
from typing import Annotated

import typer

from fedcm.api.progress import say
from fedcm.cli import options
from fedcm.cli.archive_question import ask_for_archive
from fedcm.cli.session import choose_workers, command_session, keep_stdout_for_results, print_outcome_and_exit


def run(
    experiment: options.ExperimentPath,
    overrides: options.SettingOverrides = None,
    name: Annotated[
        str | None,
        typer.Option(
            help="The run's name; by default made from the experiment, the algorithm and the seed.", show_default=False
        ),
    ] = None,
    seed: options.Seed = None,
    runs_dir: options.RunsDir = Path("runs"),
    data_dir: options.DataDir = None,
    workers: options.Workers = None,
    compile: options.Compile = None,
    device: options.Device = None,
    precision: options.Precision = None,
    track: options.Track = None,
    diagnose: options.Diagnose = None,
    fresh: Annotated[
        bool,
        typer.Option(
            "--fresh",
            help="Start again under the same name; the existing run is moved to `archive` in the folder of runs. On a "
            "terminal it asks first.",
        ),
    ] = False,
    archive: Annotated[
        Path | None, typer.Option(hidden=True, help="Where --fresh moves a run, for a sweep that has asked already.")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Run an experiment: a TOML file, or a bundled experiment by its name (`fedcm experiments` lists them).

    docs/experiments.md explains every setting.

    Examples: `fedcm run demo`, `fedcm run my.toml --set algorithm.alpha=0.05 --set rounds=100 --seed 3`
    """
    from fedcm.api.experiments import load_experiment
    from fedcm.api.runs import run as run_experiment
    from fedcm.runs.identity import make_default_name
    from fedcm.runs.workers.torchrun import is_launched

    overrides = options.collect_overrides(overrides, seed, compile, device, precision)
    if fresh and archive is None and not is_launched():
        default = make_default_name(load_experiment(experiment, overrides))
        archive = ask_for_archive(runs_dir, [name or default])
    with command_session(data_dir, "start it again") as (stop_requested, launch), keep_stdout_for_results(as_json):
        chosen = load_experiment(experiment, overrides)
        finished = run_experiment(
            chosen,
            name=name,
            runs_dir=runs_dir,
            data_dir=data_dir,
            workers=choose_workers(workers, launch, chosen.engine.device),
            track=track or (),
            diagnose_every=diagnose,
            fresh=fresh,
            archive=archive,
            progress=True,
            notify=say,
            stop_requested=stop_requested,
            launch=launch,
        )
    print_outcome_and_exit(finished, as_json)
