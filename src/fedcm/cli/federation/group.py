"""`fedcm federation`: a real federation, from its certificates to the trained model."""

from pathlib import Path
from typing import Annotated

import typer

from fedcm.cli import options
from fedcm.cli.federation import lead_commands, provision_commands, serve_commands, watch_commands

federation_app = typer.Typer(
    no_args_is_help=True,
    help="""A real federation: sites keep their data and train on their own machines (docs/guides/federation.md).

An organiser makes it (`init`), each party starts its part (`server`, `site`), an admin runs experiments (`run`).""",
)


def deal(
    experiment: options.ExperimentPath,
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder for the files.")],
    sites: Annotated[str, typer.Option(metavar="A,B,…", help="The sites' names; site-1, site-2, … unless given.")] = "",
    settings: options.Settings = None,
    seed: options.Seed = None,
    data_dir: options.DataDir = None,
) -> None:
    """Deal an experiment's data out to sites, an .npz each, to try a federation before the real data are there.

    Example: `fedcm federation deal experiments/demo.toml --set split.clients=3 -o dealt`
    """
    from fedcm.config.experiment import load_experiment
    from fedcm.federation.provision.deal import deal as dealt

    chosen = load_experiment(experiment, options.changes(settings, seed))
    files, same_bits = dealt(chosen, [name for name in sites.split(",") if name], output, data_dir)
    for file in files:
        print(file)
    if same_bits:
        print("for the bits of the simulation: " + " ".join(f"--set '{setting}'" for setting in same_bits))


for command in (
    provision_commands.init,
    provision_commands.request,
    provision_commands.approve,
    provision_commands.join,
    provision_commands.renew,
    serve_commands.check,
    serve_commands.server,
    serve_commands.site,
    serve_commands.unit,
    lead_commands.run,
    watch_commands.status,
    watch_commands.stop,
    lead_commands.resume,
    watch_commands.logs,
    watch_commands.fetch,
    deal,
):
    federation_app.command()(command)
