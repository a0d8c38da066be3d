"""One experiment, several algorithms: what is missing is run, what was stopped goes on, what is done is left alone."""

from collections.abc import Callable, Sequence
from pathlib import Path

from fedcm.executors.executor import Diverged
from fedcm.experiment import Experiment, load, read, resolved
from fedcm.overrides import read_table
from fedcm.progress import say, shown
from fedcm.record import RunFolder
from fedcm.refusal import Refused
from fedcm.running import drive
from fedcm.starting import begin, default_name, resume
from fedcm.torchrun import Launch
from fedcm.tracking import Tracker, track_again, tracked


def compared(
    experiment: Path,
    algorithms: Sequence[str],
    settings: Sequence[str],
    runs_dir: Path,
    data_dir: Path | None = None,
    workers: int = 1,
    *,
    fresh: bool = False,
    stop_requested: Callable[[], bool] = lambda: False,
    launch: Launch | None = None,
    trackers: Sequence[type[Tracker]] = (),
) -> dict[str, RunFolder]:
    """The runs by algorithm, finished or diverged. All experiments are read before the first one runs."""
    experiments = {name: load(experiment, settings, name) for name in algorithms}
    paths = {name: runs_dir / default_name(chosen) for name, chosen in experiments.items()}
    if len(set(paths.values())) < len(paths):
        raise Refused("the algorithms of a comparison must differ, and --set algorithm.name makes them the same")
    if not fresh:
        for name, path in paths.items():
            _refuse_other_settings(path, experiments[name])
    for position, (name, chosen) in enumerate(experiments.items(), 1):
        title, path = f"{name} ({position} of {len(experiments)})", paths[name]
        anew = fresh and not (launch is not None and RunFolder(path).is_of(launch.job))  # its own, before a restart
        _run(chosen, path, data_dir, workers, anew, stop_requested, title, launch, trackers)
    return {name: RunFolder(path) for name, path in paths.items()}


def _run(
    experiment: Experiment,
    path: Path,
    data_dir: Path | None,
    workers: int,
    fresh: bool,
    stop_requested: Callable[[], bool],
    title: str,
    launch: Launch | None,
    trackers: Sequence[type[Tracker]],
) -> None:
    summary = RunFolder(path).read_summary()
    if summary is not None and not fresh:
        say(f"{title} has {summary['outcome']} already")
        track_again(RunFolder(path), trackers)
        return
    if path.exists() and not fresh:
        run = resume(path, data_dir, say, stop_requested, workers=workers, launch=launch)
    else:
        where = path.parent, path.name
        run = begin(experiment, *where, data_dir, stop_requested, replace=fresh, workers=workers, launch=launch)
    try:
        rounds = shown(drive(run), run.rounds, run.first, title)
        for _ in tracked(rounds, run.folder, run.first, trackers):
            pass
    except Diverged as reason:
        say(f"{title} diverged: {reason}")


def _refuse_other_settings(path: Path, experiment: Experiment) -> None:
    folder = RunFolder(path)
    if not folder.experiment.is_file():
        return
    there, here = resolved(read(read_table(folder.experiment))), resolved(experiment)
    chosen = {key: there["engine"][key] for key, value in here["engine"].items() if value == "auto"}
    here["engine"] |= chosen
    if differing := [key for key in here if here[key] != there.get(key)]:
        raise Refused(
            f"the run {str(path)!r} has other settings ({', '.join(differing)}); run all anew with --fresh, or use "
            "another --runs-dir"
        )
