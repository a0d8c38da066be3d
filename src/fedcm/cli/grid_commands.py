"""`fedcm compare`, `sweep` and `reproduce`: many runs from one file, then a table, the curves and a report."""

from pathlib import Path
from typing import Annotated

import typer

from fedcm.cli import options
from fedcm.cli.driving import How, drive_series

Algorithms = Annotated[
    str, typer.Option(help="Such as `fedavg,fedcm,my_module:Mine`; the file's grid, or all bundled ones, unless given.")
]
Seeds = Annotated[
    int | None,
    typer.Option(
        min=1, max=1000, help="So many seeds, from the experiment's own on; one unless given.", show_default=False
    ),
]
Fresh = Annotated[
    bool,
    typer.Option(
        "--fresh",
        help="Run all anew; runs of the same names are moved to `archive` in the runs' folder. On a terminal it asks.",
    ),
]
Only = Annotated[
    str,
    typer.Option(
        metavar="PART",
        help="Only runs with this in their name, such as `ii-dirichlet-fedcm-seed0`; --dry-run lists them.",
    ),
]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Run nothing: print what would be run and how long it takes, by a short probe."),
]


def compare(
    experiment: options.ExperimentPath,
    algorithms: Algorithms = "",
    seeds: Seeds = None,
    settings: options.Settings = None,
    seed: options.Seed = None,
    runs_dir: options.RunsDir = Path("runs"),
    data_dir: options.DataDir = None,
    workers: options.Workers = None,
    compile: options.Compile = None,
    device: options.Device = None,
    precision: options.Precision = None,
    track: options.Track = None,
    only: Only = "",
    fresh: Fresh = False,
    dry_run: DryRun = False,
    as_json: options.AsJson = False,
) -> None:
    """Run an experiment once for each algorithm and seed, or a whole grid; then a table, curves and a report.

    What is finished is not run again, what was stopped goes on. Settings of one algorithm stand in the experiment's
    `[for.NAME]` table, a grid in its `[grid]` (docs/experiments.md). Runs go side by side where there are cores.

    Example: `fedcm compare experiments/demo.toml --algorithms fedavg,fedcm --seeds 3`
    """
    from fedcm.algorithms import ALGORITHMS
    from fedcm.config.overrides import read_table
    from fedcm.sweeps.grid import expand_grid

    names = [name.strip() for name in algorithms.split(",") if name.strip()]
    if not names and "grid" not in read_table(experiment):
        names = list(ALGORITHMS)
    settings = options.changes(settings, seed, compile, device, precision)
    runs = expand_grid(experiment, settings, algorithms=names, seeds=seeds)
    how = How(runs_dir, data_dir, workers, track, only, fresh, dry_run, as_json)
    drive_series(runs, experiment.stem, how)


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
    algorithms: Algorithms = "",
    seeds: Seeds = None,
    settings: options.Settings = None,
    seed: options.Seed = None,
    runs_dir: options.RunsDir = Path("runs"),
    data_dir: options.DataDir = None,
    workers: options.Workers = None,
    compile: options.Compile = None,
    device: options.Device = None,
    precision: options.Precision = None,
    track: options.Track = None,
    only: Only = "",
    fresh: Fresh = False,
    dry_run: DryRun = False,
    as_json: options.AsJson = False,
) -> None:
    """Run an experiment for every value of a setting, or every combination of several; then as `fedcm compare`.

    Runs have the setting in their names. What is there already is used again, whatever it is called; a run with other
    settings is never written over.

    Example: `fedcm sweep experiments/demo.toml --over algorithm.alpha=0.03,0.1,0.3 --over client.lr=0.05,0.1`
    """
    from fedcm.sweeps.grid import expand_grid
    from fedcm.sweeps.run_names import sweep_title

    names = [name.strip() for name in algorithms.split(",") if name.strip()]
    settings = options.changes(settings, seed, compile, device, precision)
    runs = expand_grid(experiment, settings, algorithms=names, seeds=seeds, over=over)
    how = How(runs_dir, data_dir, workers, track, only, fresh, dry_run, as_json)
    drive_series(runs, sweep_title(experiment.stem, over), how)


def reproduce(
    what: Annotated[
        str, typer.Argument(metavar="WHAT", help="What to reproduce: `table1`, `table2`, `table3`, `figures`.")
    ],
    scale: Annotated[
        str, typer.Option(metavar="mini|full", help="full: as the paper; mini: for a small machine.")
    ] = "mini",
    seeds: Seeds = None,
    settings: options.Settings = None,
    runs_dir: options.RunsDir = Path("runs"),
    data_dir: options.DataDir = None,
    workers: options.Workers = None,
    compile: options.Compile = None,
    device: options.Device = None,
    precision: options.Precision = None,
    track: options.Track = None,
    only: Only = "",
    fresh: Fresh = False,
    dry_run: DryRun = False,
    as_json: options.AsJson = False,
) -> None:
    """Run the paper's tables or figures, at its own scale or at one for a small machine; then as `fedcm compare`.

    The grids are `experiments/paper/*.toml` and `experiments/mini/*.toml`. `figures` are the curves of all tables.

    Example: `fedcm reproduce table1 --scale mini --dry-run`
    """
    from fedcm.sweeps.grid import expand_grid
    from fedcm.sweeps.paper_grids import list_grid_files

    settings = options.changes(settings, None, compile, device, precision)
    runs = [run for path in list_grid_files(what, scale) for run in expand_grid(path, settings, seeds=seeds)]
    how = How(runs_dir / scale, data_dir, workers, track, only, fresh, dry_run, as_json)
    drive_series(runs, f"{scale}-{what}", how)
