"""`fedcm federation run`."""

from pathlib import Path
from typing import Annotated

import typer

from fedcm.cli import options
from fedcm.cli.federation.following import follow_and_fetch
from fedcm.cli.federation.options import AdminKit, Detach, Patience, Restarts
from fedcm.runs.progress import say


def run(
    experiment: options.ExperimentPath,
    kit: AdminKit,
    settings: options.Settings = None,
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
    """Run an experiment over the connected sites, follow it, and fetch the result as an ordinary run's folder.

    Ctrl-C stops following; the run continues (`fedcm federation stop` stops it).

    Example: `fedcm federation run experiments/demo.toml --kit admins/lead@example.org --set rounds=20`
    """
    from fedcm.config.experiment import load_experiment
    from fedcm.federation.admin.results import reject_local_run
    from fedcm.federation.admin.runs import start_run
    from fedcm.federation.admin.session import open_session
    from fedcm.federation.kit import read_kit
    from fedcm.runs.session import make_default_name, reject_unusable_name

    admin, chosen = read_kit(kit), load_experiment(experiment, options.list_overrides(settings, seed))
    name = name or make_default_name(chosen)
    reject_unusable_name(name)
    if not detach:
        reject_local_run(runs_dir / name)
    named = [site.strip() for site in (sites or "").split(",") if site.strip()]
    with open_session(admin) as session:
        submitted = start_run(session, name, chosen, named, say)
    taking_part = submitted.experiment.federation.sites
    say(f"run {name} was submitted for {len(taking_part)} sites: {', '.join(taking_part)}")
    if not detach:
        follow_and_fetch(admin, submitted, runs_dir, restarts, patience)
