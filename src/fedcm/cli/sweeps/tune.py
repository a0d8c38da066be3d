"""`fedcm tune`: search for the best settings of algorithms, with the same budget for each."""

import json
from pathlib import Path
from typing import Annotated

import typer

from fedcm.api.progress import say
from fedcm.cli import options
from fedcm.cli.archive_question import ask_before_archiving
from fedcm.cli.session import choose_workers, command_session, keep_stdout_for_results


def tune(
    experiment: options.ExperimentPath,
    more: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PATH=VALUES]...", help="More settings to tune, as after --over.", show_default=False),
    ] = None,
    over: Annotated[
        list[str] | None,
        typer.Option(
            "--over",
            metavar="PATH=VALUES...",
            help="Settings to tune: a range such as `client.lr=0.01..1:log`, `client.epochs=1..5:int` or "
            "`server.lr=0.5..1.5:step=0.1`, or choices such as `client.batch_size=5,10`. `fedcm:algorithm.alpha=…` "
            "is for one algorithm. Several may follow, or repeat the option.",
            show_default=False,
        ),
    ] = None,
    algorithms: Annotated[
        str,
        typer.Option(
            help="Algorithms to tune, such as `fedavg,fedcm,my_module:Mine`, each with the same number of trials; by "
            "default the experiment's own. A setting `algorithm.X` applies to those that have X.",
            show_default=False,
        ),
    ] = "",
    trials: Annotated[int, typer.Option(min=1, max=100_000, help="Trials per algorithm.")] = 30,
    seeds: Annotated[
        int, typer.Option(min=1, max=1000, help="Further seeds for the best setting of each algorithm.")
    ] = 1,
    validation: Annotated[
        float,
        typer.Option(help="Share of the training data to hold back, if the experiment has no validation data."),
    ] = 0.1,
    prune: Annotated[
        bool, typer.Option("--prune/--no-prune", help="Stop trials that are worse than the median of earlier ones.")
    ] = True,
    name: Annotated[
        str | None,
        typer.Option(
            help="The tuning's folder in the folder of runs; by default the experiment's name and `-tune`.",
            show_default=False,
        ),
    ] = None,
    overrides: options.SettingOverrides = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="The seed of the trials and of the search; --set seed=N.", show_default=False),
    ] = None,
    runs_dir: options.RunsDir = Path("runs"),
    data_dir: options.DataDir = None,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, max=1024, help="Trials in parallel; by default one per worker.", show_default=False),
    ] = None,
    workers: options.Workers = None,
    compile: options.Compile = None,
    device: options.Device = None,
    precision: options.Precision = None,
    track: options.Track = None,
    fresh: Annotated[
        bool,
        typer.Option(
            "--fresh",
            help="Start again; an existing tuning of this name is moved to `archive` in the folder of runs. On a "
            "terminal it asks first.",
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the space, the runs and an estimate of their time.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Search for the best settings of one or several algorithms, by their accuracy (or loss) on validation data.

    Each algorithm gets the same number of trials. Optuna draws their settings: at random first, then near the best.
    Hopeless trials are stopped early. The test data are not looked at until the best setting of each algorithm runs
    with further seeds. Then a table is printed, and `best-ALGORITHM.toml` and a report are written. The same command
    continues a tuning that was stopped; a larger --trials extends it. It needs `pip install "fedcm[tune]"`.

    Examples: `fedcm tune demo --over client.lr=0.01..1:log algorithm.alpha=0.01..1:log --trials 30`,
    `fedcm tune demo --algorithms fedavg,fedcm --over client.lr=0.01..1:log fedcm:algorithm.alpha=0.05,0.1 --seeds 3`
    """
    from fedcm.cli.terminal.sweep_progress import show_sweep_progress
    from fedcm.cli.terminal.tuning import print_tuning_plan, print_tuning_result
    from fedcm.cli.terminal.tuning_progress import show_search_progress
    from fedcm.reports.search.write import write_tuning_report
    from fedcm.tuning.estimate import estimate_tuning, to_tuning_table
    from fedcm.tuning.plan import plan_tuning
    from fedcm.tuning.sampler import load_optuna
    from fedcm.tuning.search import SearchOptions
    from fedcm.tuning.session import find_device, reject_torchrun, run_tuning, share_cores
    from fedcm.tuning.winners import to_result_table

    reject_torchrun()
    load_optuna()
    plan = plan_tuning(
        experiment,
        [*(over or []), *(more or [])],
        options.collect_overrides(overrides, seed, compile, device, precision),
        algorithms=options.list_algorithms(algorithms),
        trials=trials,
        seeds=seeds,
        validation=validation,
        name=name,
        data_dir=data_dir,
    )
    folder = runs_dir / plan.name
    if fresh and not dry_run:
        ask_before_archiving(folder, folder / "tune.json")
    cores = choose_workers(workers, None, find_device(plan))
    share = share_cores(plan, cores, jobs)
    advice = f"the same command{' without --fresh' if fresh else ''} continues where it stopped"
    if dry_run:
        with keep_stdout_for_results(as_json):
            estimates = estimate_tuning(plan, folder, data_dir)
        if as_json:
            print(json.dumps(to_tuning_table(estimates, cores), indent=2))
        else:
            print_tuning_plan(estimates, cores)
        return
    with command_session(data_dir, advice) as (stop_requested, _), keep_stdout_for_results(as_json):
        search, winners = run_tuning(
            plan,
            runs_dir,
            SearchOptions(share, data_dir, prune, track or (), stop_requested, say),
            fresh=fresh,
            show_search=show_search_progress,
            show_winners=show_sweep_progress,
        )
        page = write_tuning_report(search, winners, data_dir)
    if as_json:
        print(json.dumps(to_result_table(winners), indent=2))
    else:
        print_tuning_result(winners)
    print_path = say if as_json else print
    for winner in winners:
        if winner.file is not None:
            print_path(f"best settings of {winner.algorithm}: {winner.file}")
    print_path(f"report: {page}")
    if any(winner.best is None for winner in winners):
        raise typer.Exit(1)
