"""`fedcm data …`: prepare datasets, and show how an experiment splits its data over clients."""

import json
from pathlib import Path
from typing import Annotated

import typer

from fedcm.api.progress import say
from fedcm.cli.options import AsJson, DataDir, ExperimentPath, Seed, SettingOverrides, collect_overrides

data_app = typer.Typer(no_args_is_help=True, help="Prepare datasets, and show how data are split over clients.")


@data_app.command()
def prepare(
    name: Annotated[str, typer.Argument(help="cifar10, cifar100, mnist, fashion-mnist or shakespeare.")],
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

    print(prepare_dataset(name, resolve_data_folder(data_dir), archive, offline=offline, notify=say))


@data_app.command()
def split(
    experiment: ExperimentPath,
    overrides: SettingOverrides = None,
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
    from fedcm.config.experiment import load_experiment_file
    from fedcm.reports.split import report_split

    loaded = load_experiment_file(experiment, collect_overrides(overrides, seed))
    summary, figure = report_split(loaded, output or Path(f"{loaded.name}-split.png"), data_dir)
    if as_json:
        print(json.dumps(summary | {"picture": str(figure)}))
    else:
        print_split(summary)
        print(f"figure: {figure}")
