"""`fedcm compare`: run an experiment once per algorithm and seed."""

from fedcm.cli import options
from fedcm.cli.sweeps.session import run_sweep


@options.add_sweep_options
def compare(
    experiment: options.ExperimentPath, algorithms: options.Algorithms = "", *, sweep: options.SweepOptions
) -> None:
    """Run an experiment once per algorithm and seed, or a whole grid; then print a table and write curves and a report.

    By default it compares FedCM with the baselines of its paper; `--algorithms all` takes all that `fedcm algorithms`
    lists.

    Finished runs are reused and stopped ones are resumed. Put settings of one algorithm into the experiment's
    `[for.NAME]` table and a grid into `[grid]` (docs/experiments.md). If there are several cores, runs train in
    parallel.

    Example: `fedcm compare demo --algorithms fedavg,fedcm --seeds 3`
    """
    from fedcm.algorithms import PAPER_ALGORITHMS
    from fedcm.config.bundled import has_grid
    from fedcm.sweeps.grid import expand_grid

    names = options.list_algorithms(algorithms)
    if not names and not has_grid(experiment):
        names = list(PAPER_ALGORITHMS)
    runs = expand_grid(experiment, sweep.collect_overrides(), algorithms=names, seeds=sweep.seeds)
    run_sweep(runs, experiment.stem, sweep)
