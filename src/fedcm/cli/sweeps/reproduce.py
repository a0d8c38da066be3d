"""`fedcm reproduce`: run the paper's tables."""

import dataclasses
from typing import Annotated

import typer

from fedcm.cli import options
from fedcm.cli.sweeps.session import run_sweep


@options.add_sweep_options
def reproduce(
    what: Annotated[
        str, typer.Argument(metavar="WHAT", help="What to reproduce: `table1`, `table2`, `table3`, `figures`.")
    ],
    scale: Annotated[
        str, typer.Option(metavar="mini|full", help="full: as in the paper; mini: for a small machine.")
    ] = "mini",
    *,
    sweep: options.SweepOptions,
) -> None:
    """Run the experiments of the paper's tables or figures, at the paper's scale or at one for a small machine.

    Then print a table and write curves and a report, as `compare` does. The grids are the bundled experiments `paper/*`
    and `mini/*`. `figures` runs the grids of all tables, for their curves.

    Example: `fedcm reproduce table1 --scale mini --dry-run`
    """
    from fedcm.sweeps.grid import expand_grid
    from fedcm.sweeps.paper_grids import list_grid_files

    overrides = sweep.collect_overrides()
    runs = [run for path in list_grid_files(what, scale) for run in expand_grid(path, overrides, seeds=sweep.seeds)]
    run_sweep(runs, f"{scale}-{what}", dataclasses.replace(sweep, runs_dir=sweep.runs_dir / scale))
