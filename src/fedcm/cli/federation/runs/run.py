"""`fedcm federation run`."""

from pathlib import Path
from typing import Annotated

import typer

from fedcm.api.progress import say
from fedcm.cli import options
from fedcm.cli.federation.options import AdminKit, Detach, Patience, Restarts
from fedcm.cli.federation.runs.run_watch import watch_and_fetch


def run(
    experiment: options.ExperimentPath,
    kit: AdminKit,
    overrides: options.SettingOverrides = None,
    seed: options.Seed = None,
    name: Annotated[
        str | None, typer.Option(help="The run's name; by default made from experiment, algorithm and seed.")
    ] = None,
    sites: Annotated[
        str | None, typer.Option(metavar="A,B,…", help="Which sites take part; by default all that are connected.")
    ] = None,
    runs_dir: options.RunsDir = Path("runs"),
    detach: Detach = False,
    restarts: Restarts = 3,
    patience: Patience = 600.0,
) -> None:
    """Run an experiment over the connected sites, watch it, and fetch the result as an ordinary run's folder.

    Ctrl-C stops watching; the run continues (`fedcm federation stop` stops it).

    Example: `fedcm federation run experiments/demo.toml --kit admins/lead@example.org --set rounds=20`
    """
    from fedcm.config.experiment import load_experiment_file
    from fedcm.federation.admin.results import reject_local_run
    from fedcm.federation.admin.runs import start_run
    from fedcm.federation.admin.session import open_session
    from fedcm.federation.kit import read_kit
    from fedcm.runs.identity import make_default_name, reject_unusable_name
    from fedcm.system.formatting import format_count, split_names

    admin, chosen = read_kit(kit), load_experiment_file(experiment, options.collect_overrides(overrides, seed))
    name = name or make_default_name(chosen)
    reject_unusable_name(name)
    if not detach:
        reject_local_run(runs_dir / name)
    with open_session(admin) as session:
        submitted = start_run(session, name, chosen, split_names(sites or ""), say)
    taking_part = submitted.experiment.federation.sites
    say(f"run {name} was submitted for {format_count(len(taking_part), 'site')}: {', '.join(taking_part)}")
    if not detach:
        watch_and_fetch(admin, submitted, runs_dir, restarts, patience)
