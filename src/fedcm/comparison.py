"""One experiment, several algorithms: what is missing is run, what was stopped goes on, what is done is left alone."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedcm.experiment import Experiment, read, read_table, resolved, with_algorithm
from fedcm.progress import say, shown
from fedcm.record import RunFolder
from fedcm.refusal import Refused
from fedcm.running import begin, default_name, drive, resume


def compared(
    table: dict[str, Any],
    algorithms: Sequence[str],
    runs_dir: Path,
    data_dir: Path | None = None,
    *,
    fresh: bool = False,
    stop_requested: Callable[[], bool] = lambda: False,
) -> dict[str, RunFolder]:
    """The finished runs by algorithm. All experiments are read before the first one runs."""
    experiments = {name: read(with_algorithm(table, name)) for name in algorithms}
    paths = {name: runs_dir / default_name(experiment) for name, experiment in experiments.items()}
    for name, path in paths.items():
        if fresh and RunFolder(path).experiment.is_file():
            shutil.rmtree(path)
        _refuse_other_settings(path, experiments[name])
    for position, (name, experiment) in enumerate(experiments.items(), 1):
        summary = RunFolder(paths[name]).read_summary()
        if summary is not None and summary.get("outcome") == "finished":
            say(f"{name} is finished already")
            continue
        if paths[name].exists():
            run = resume(paths[name], data_dir, say, stop_requested)
        else:
            run = begin(experiment, runs_dir, paths[name].name, data_dir, stop_requested)
        for _ in shown(drive(run), run.rounds, run.first, f"{name} ({position} of {len(experiments)})"):
            pass
    return {name: RunFolder(path) for name, path in paths.items()}


def _refuse_other_settings(path: Path, experiment: Experiment) -> None:
    folder = RunFolder(path)
    if folder.experiment.is_file() and resolved(read(read_table(folder.experiment))) != resolved(experiment):
        raise Refused(f"the run {str(path)!r} has other settings; run it anew with --fresh, or use another --runs-dir")
