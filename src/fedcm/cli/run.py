"""`fedcm run`: run an experiment."""

from pathlib import Path
from typing import Annotated

import typer

from fedcm.cli import options
from fedcm.cli.archive_question import ask_for_archive
from fedcm.cli.session import choose_workers, command_session, exit_after, results_on_stdout
from fedcm.runs.progress import say


def run(
    experiment: options.ExperimentPath,
    settings: options.Settings = None,
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
    from fedcm.api.runs import resume as resume_run
    from fedcm.api.runs import run as run_experiment
    from fedcm.runs.folder import find_run_of_job
    from fedcm.runs.session import make_default_name
    from fedcm.runs.torchrun import is_launched

    overrides = options.list_overrides(settings, seed, compile, device, precision)
    if fresh and archive is None and not is_launched():
        default = make_default_name(load_experiment(experiment, overrides))
        archive = ask_for_archive(runs_dir, [name or default])
    with command_session(data_dir, "start it again") as (stop_requested, launch), results_on_stdout(as_json):
        chosen = load_experiment(experiment, overrides)
        size = choose_workers(workers, launch, chosen.engine.device)
        shared = {"data_dir": data_dir, "workers": size, "track": track or (), "diagnose_every": diagnose}
        shared |= {"progress": True, "notify": say, "stop_requested": stop_requested, "launch": launch}
        restarted = find_run_of_job(launch.job, runs_dir) if launch is not None else None
        if restarted is not None:
            finished = resume_run(restarted.path, **shared)
        else:
            finished = run_experiment(chosen, name=name, runs_dir=runs_dir, fresh=fresh, archive=archive, **shared)
    exit_after(finished, as_json)
