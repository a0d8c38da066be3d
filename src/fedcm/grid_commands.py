"""`fedcm compare`, `sweep` and `reproduce`: many runs from one file, then a table and the curves."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from fedcm.options import (
    AsJson,
    Compile,
    DataDir,
    Device,
    ExperimentPath,
    Precision,
    RunsDir,
    Seed,
    Settings,
    Track,
    Workers,
)
from fedcm.options import changes as changed
from fedcm.progress import say
from fedcm.refusal import Refused
from fedcm.run_commands import crew_size, going_on_by, only_results_on_stdout, sharing_the_work

Algorithms = Annotated[
    str, typer.Option(help="Such as `fedavg,fedcm,my_module:Mine`; the file's grid, or all bundled ones, unless given.")
]
Seeds = Annotated[
    int | None,
    typer.Option(
        min=1, max=1000, help="So many seeds, from the experiment's own on; one unless given.", show_default=False
    ),
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Run all anew, replacing the runs of the same names.")]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Run nothing: print what would be run and how long it takes, by a short probe."),
]


def compare(
    experiment: ExperimentPath,
    algorithms: Algorithms = "",
    seeds: Seeds = None,
    settings: Settings = None,
    seed: Seed = None,
    runs_dir: RunsDir = Path("runs"),
    data_dir: DataDir = None,
    workers: Workers = None,
    compile: Compile = None,
    device: Device = None,
    precision: Precision = None,
    track: Track = None,
    fresh: Fresh = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Run an experiment once for each algorithm and seed, or a whole grid; then show a table and draw the curves.

    What is finished is not run again, what was stopped goes on. Settings of one algorithm stand in the experiment's
    `[for.NAME]` table, a grid in its `[grid]` (docs/experiments.md). Runs go side by side where there are cores.

    Example: `fedcm compare experiments/demo.toml --algorithms fedavg,fedcm --seeds 3`
    """
    from fedcm.algorithms import ALGORITHMS
    from fedcm.grid import runs_of
    from fedcm.overrides import read_table

    names = [name.strip() for name in algorithms.split(",") if name.strip()]
    if not names and "grid" not in read_table(experiment):
        names = list(ALGORITHMS)
    settings = changed(settings, seed, compile, device, precision)
    runs = runs_of(experiment, settings, algorithms=names, seeds=seeds)
    _all(runs, experiment.stem, runs_dir, data_dir, workers, track=track, fresh=fresh, dry_run=dry_run, as_json=as_json)


def sweep(
    experiment: ExperimentPath,
    over: Annotated[
        list[str],
        typer.Option("--over", metavar="PATH=VALUE,VALUE", help="A setting and its values; more of these multiply."),
    ],
    algorithms: Algorithms = "",
    seeds: Seeds = None,
    settings: Settings = None,
    seed: Seed = None,
    runs_dir: RunsDir = Path("runs"),
    data_dir: DataDir = None,
    workers: Workers = None,
    track: Track = None,
    fresh: Fresh = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Run an experiment for every value of a setting, or every combination of several; then as `fedcm compare`.

    Example: `fedcm sweep experiments/demo.toml --over algorithm.alpha=0.03,0.1,0.3 --over client.lr=0.05,0.1`
    """
    from fedcm.grid import runs_of

    names = [name.strip() for name in algorithms.split(",") if name.strip()]
    runs = runs_of(experiment, changed(settings, seed), algorithms=names, seeds=seeds, over=over)
    _all(
        runs,
        f"{experiment.stem}-sweep",
        runs_dir,
        data_dir,
        workers,
        track=track,
        fresh=fresh,
        dry_run=dry_run,
        as_json=as_json,
    )


def reproduce(
    what: Annotated[
        str, typer.Argument(metavar="WHAT", help="What to reproduce: `table1`, `table2`, `table3`, `figures`.")
    ],
    scale: Annotated[
        str, typer.Option(metavar="mini|full", help="full: as the paper; mini: for a small machine.")
    ] = "mini",
    seeds: Seeds = None,
    settings: Settings = None,
    runs_dir: RunsDir = Path("runs"),
    data_dir: DataDir = None,
    workers: Workers = None,
    track: Track = None,
    fresh: Fresh = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Run the paper's tables or figures, at its own scale or at one for a small machine; then as `fedcm compare`.

    The grids are `experiments/paper/*.toml` and `experiments/mini/*.toml`. `figures` are the curves of all tables.

    Example: `fedcm reproduce table1 --scale mini --dry-run`
    """
    from fedcm.grid import runs_of
    from fedcm.reproduction import grid_files

    runs = [run for path in grid_files(what, scale) for run in runs_of(path, settings or [], seeds=seeds)]
    title, place = f"{scale}-{what}", runs_dir / scale
    _all(runs, title, place, data_dir, workers, track=track, fresh=fresh, dry_run=dry_run, as_json=as_json)


def _all(
    runs: Sequence[Any],
    title: str,
    runs_dir: Path,
    data_dir: Path | None,
    workers: int | None,
    *,
    track: list[str] | None,
    fresh: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    from fedcm.planning import planned
    from fedcm.series import tasks_of

    how = f"the same command goes on where it stopped{', without --fresh' if fresh else ''}"
    estimates = []
    with sharing_the_work(data_dir, how) as (stopping, launch), only_results_on_stdout(as_json), going_on_by(how):
        tasks = tasks_of(runs, runs_dir, fresh=fresh)
        cores = crew_size(workers, launch)
        if dry_run:
            estimates = planned(tasks, data_dir)
        else:
            _run_all(tasks, data_dir, cores, stopping, launch, track or [])
    if dry_run:
        _print_plan(estimates, cores, as_json)
        return
    if failed := [task for task in tasks if task.state == "failed"]:
        raise Refused(f"{len(failed)} of {len(tasks)} runs failed, first {failed[0].run.name}: {failed[0].why}")
    _show(tasks, title, runs_dir, as_json)
    if any(task.state != "finished" for task in tasks):
        raise typer.Exit(1)


def _run_all(
    tasks: Sequence[Any],
    data_dir: Path | None,
    cores: int,
    stopping: Callable[[], bool],
    launch: Any,
    track: list[str],
) -> None:
    from fedcm.in_turn import run_in_turn
    from fedcm.preflight import refuse_what_cannot_begin
    from fedcm.report.series_progress import shown_series
    from fedcm.series import run_all
    from fedcm.trackers import named
    from fedcm.tracking import track_again

    trackers = named(track)
    for task in tasks:
        if task.over:
            track_again(task.folder, trackers)
    left = sum(not task.over for task in tasks)
    refuse_what_cannot_begin(tasks, data_dir)
    jobs = max(min(left, cores), 1)
    if left < len(tasks):
        say(f"{len(tasks) - left} of {len(tasks)} runs are finished already")
    if launch is not None:
        passing = run_in_turn(tasks, data_dir, launch, stopping, trackers)
    else:
        passing = run_all(
            tasks, data_dir, jobs=jobs, workers=max(cores // jobs, 1), track=track, stop_requested=stopping
        )
    for _ in shown_series(passing, tasks, jobs):
        pass


def _print_plan(estimates: Sequence[Any], cores: int, as_json: bool) -> None:
    from fedcm.report.tables import plan_table

    if as_json:
        rows = [
            {"run": e.task.run.name, "state": e.task.state, "rounds": e.task.rounds, "done": e.task.done}
            | {"seconds_a_round": e.seconds_a_round, "seconds": e.seconds}
            for e in estimates
        ]
        print(
            json.dumps({"runs": rows, "cores": cores, "seconds": sum(e.seconds for e in estimates) / cores}, indent=2)
        )
    else:
        plan_table(estimates, cores)


def _show(tasks: Sequence[Any], title: str, runs_dir: Path, as_json: bool) -> None:
    from fedcm.report.curves import draw_curves
    from fedcm.report.tables import comparison_table, series_table
    from fedcm.series import short_names

    names = short_names(tasks)
    summaries = {names[task.run.name]: task.folder.read_summary() or {} for task in tasks}
    if as_json:
        print(json.dumps(summaries, indent=2))
    elif any(task.run.experiment.cell.labels for task in tasks) or len({t.run.experiment.seed for t in tasks}) > 1:
        series_table(tasks)
    else:
        comparison_table(summaries)
    curves = {names[task.run.name]: task.folder.read_metrics() for task in tasks}
    picture = draw_curves(curves, title, runs_dir / f"{title}.png")
    (say if as_json else print)(f"curves: {picture}")
