"""`fedcm federation deal`."""

from pathlib import Path
from typing import Annotated

import typer

from fedcm.cli import options


def deal(
    experiment: options.ExperimentPath,
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder for the files.")],
    sites: Annotated[str, typer.Option(metavar="A,B,…", help="The sites' names; by default site-1, site-2, ….")] = "",
    overrides: options.SettingOverrides = None,
    seed: options.Seed = None,
    data_dir: options.DataDir = None,
) -> None:
    """Deal an experiment's data out to sites, one .npz file each, to try a federation before the real data are ready.

    Example: `fedcm federation deal experiments/demo.toml --set split.clients=3 -o dealt`
    """
    from fedcm.config.experiment import load_experiment_file
    from fedcm.federation.provision.deal import deal as deal_data
    from fedcm.system.formatting import split_names

    chosen = load_experiment_file(experiment, options.collect_overrides(overrides, seed))
    files, needed = deal_data(chosen, split_names(sites), output, data_dir)
    for file in files:
        print(file)
    if needed:
        print("for the bits of the simulation: " + " ".join(f"--set '{setting}'" for setting in needed))
