"""`fedcm sweep`: run an experiment for every value of some settings."""

from typing import Annotated

import typer

from fedcm.cli import options
from fedcm.cli.sweeps.session import run_sweep


@options.add_sweep_options
def sweep(
    experiment: options.ExperimentPath,
    over: Annotated[
        list[str],
        typer.Option(
            "--over",
            metavar="PATH=VALUE,VALUE",
            help="A setting and its values, as TOML: `client.lr=0.1,0.3`, `model.hidden=[64,32],[128]`. Repeat it for "
            "every combination.",
        ),
    ],
    algorithms: options.Algorithms = "",
    *,
    sweep: options.SweepOptions,
) -> None:
    """Run an experiment for every value of a setting, or for every combination of several settings.

    Then print a table and write curves and a report, as `compare` does. The names of the runs contain the setting.
    Existing runs of the same experiment are reused, whatever their names; a run with other settings is never
    overwritten.

    Example: `fedcm sweep demo --over algorithm.alpha=0.03,0.1,0.3 --over client.lr=0.05,0.1`
    """
    from fedcm.sweeps.grid import expand_grid
    from fedcm.sweeps.run_names import make_sweep_title

    names = options.list_algorithms(algorithms)
    runs = expand_grid(experiment, sweep.collect_overrides(), algorithms=names, seeds=sweep.seeds, over=over)
    run_sweep(runs, make_sweep_title(experiment.stem, over), sweep)
