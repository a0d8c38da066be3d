"""`fedcm data …`: fetch data sets, and look at how they are split over clients."""

import json
from pathlib import Path
from typing import Annotated

import typer

from fedcm.cli.options import AsJson, DataDir, ExperimentPath, Seed, Settings, changes
from fedcm.errors import UserError
from fedcm.runs.progress import say

data_app = typer.Typer(no_args_is_help=True, help="Fetch data sets, and look at how they are split over clients.")


@data_app.command()
def prepare(
    name: Annotated[str, typer.Argument(help="cifar10, cifar100, mnist or fashion-mnist.")],
    archive: Annotated[
        Path | None, typer.Option("--from", help="An archive or unpacked folder that you have already.")
    ] = None,
    data_dir: DataDir = None,
    offline: Annotated[bool, typer.Option("--offline", help="Do not download anything.")] = False,
) -> None:
    """Fetch a data set into the data folder and check it: from there, from an archive, or by download.

    Example: `fedcm data prepare cifar10 --from ~/Downloads/cifar-10-python.tar.gz`
    """
    from fedcm.data import data_folder
    from fedcm.data.prepare import prepare as prepare_data

    print(prepare_data(name, data_folder(data_dir), archive, offline=offline, say=say))


@data_app.command()
def split(
    experiment: ExperimentPath,
    settings: Settings = None,
    seed: Seed = None,
    data_dir: DataDir = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The picture: NAME-split.png unless given."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show how an experiment's data are split over its clients: a summary, and a picture of the clients' label mix.

    Example: `fedcm data split experiments/demo.toml --set split.concentration=0.1 -o mix.png`
    """
    from fedcm.cli.terminal.tables import split_table
    from fedcm.config.experiment import load_experiment as load_experiment
    from fedcm.data import load
    from fedcm.data.partition import label_counts
    from fedcm.reports.figures.label_mix import draw_label_mix, spread
    from fedcm.runs.assembly import split as split_data

    chosen = load_experiment(experiment, changes(settings, seed))
    dataset = load(chosen.data.source, data_dir)
    if dataset.classes is None:
        raise UserError("the label mix needs labels that are classes, and these are numbers")
    parts = split_data(chosen, dataset)
    counts = label_counts(parts, dataset.train.labels.numpy())
    summary = spread(counts) | {"unused_examples": dataset.train.size - sum(map(len, parts))}
    path = draw_label_mix(counts, f"{chosen.name}: {dataset.name}", output or Path(f"{chosen.name}-split.png"))
    if as_json:
        print(json.dumps(summary | {"picture": str(path)}))
    else:
        split_table(summary)
        print(f"picture: {path}")
