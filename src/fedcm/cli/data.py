"""`fedcm data …`: prepare datasets, and show how an experiment splits its data over clients."""

import json
from pathlib import Path
from typing import Annotated

import typer

from fedcm.cli.options import AsJson, DataDir, ExperimentPath, Seed, Settings, list_overrides
from fedcm.errors import UserError
from fedcm.runs.progress import say

data_app = typer.Typer(no_args_is_help=True, help="Prepare datasets, and show how data are split over clients.")


@data_app.command()
def prepare(
    name: Annotated[str, typer.Argument(help="cifar10, cifar100, mnist or fashion-mnist.")],
    archive: Annotated[
        Path | None, typer.Option("--from", help="A local archive or unpacked folder to read instead of downloading.")
    ] = None,
    data_dir: DataDir = None,
    offline: Annotated[bool, typer.Option("--offline", help="Do not download anything.")] = False,
) -> None:
    """Prepare a dataset in the data folder and check it: from files in that folder, from an archive, or by download.

    Example: `fedcm data prepare cifar10 --from ~/Downloads/cifar-10-python.tar.gz`
    """
    from fedcm.data import resolve_data_folder
    from fedcm.data.prepare import prepare_dataset

    print(prepare_dataset(name, resolve_data_folder(data_dir), archive, offline=offline, say=say))


@data_app.command()
def split(
    experiment: ExperimentPath,
    settings: Settings = None,
    seed: Seed = None,
    data_dir: DataDir = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The figure's file; NAME-split.png by default."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show how an experiment splits its data over clients: a summary, and a figure of the labels of each client.

    Example: `fedcm data split experiments/demo.toml --set split.concentration=0.1 -o mix.png`
    """
    from fedcm.cli.terminal.tables import print_split
    from fedcm.config.experiment import load_experiment
    from fedcm.data import load_dataset
    from fedcm.data.partition import count_labels
    from fedcm.reports.figures.label_mix import draw_label_mix, measure_label_mix
    from fedcm.runs.build import split as split_dataset

    loaded = load_experiment(experiment, list_overrides(settings, seed))
    dataset = load_dataset(loaded.data.source, data_dir)
    if dataset.classes is None:
        raise UserError("the labels must be classes to show their split, got the numbers of a regression")
    parts = split_dataset(loaded, dataset)
    counts = count_labels(parts, dataset.train.labels.numpy())
    summary = measure_label_mix(counts) | {"unused_examples": dataset.train.size - sum(map(len, parts))}
    path = draw_label_mix(counts, f"{loaded.name}: {dataset.name}", output or Path(f"{loaded.name}-split.png"))
    if as_json:
        print(json.dumps(summary | {"picture": str(path)}))
    else:
        print_split(summary)
        print(f"figure: {path}")
