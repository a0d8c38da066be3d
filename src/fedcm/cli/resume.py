"""`fedcm resume`: continue a stopped run."""

from pathlib import Path
from typing import Annotated

import typer

from fedcm.cli import options
from fedcm.cli.session import choose_workers, command_session, exit_after, results_on_stdout
from fedcm.runs.progress import say


def resume(
    run: Annotated[Path, typer.Argument(help="The run's folder, or its name in the folder of runs.")],
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="PATH=VALUE",
            help="Change a setting on which finished rounds do not depend, such as `rounds=600`. May be repeated.",
        ),
    ] = None,
    runs_dir: options.RunsDir = Path("runs"),
    data_dir: options.DataDir = None,
    workers: options.Workers = None,
    track: options.Track = None,
    diagnose: options.Diagnose = None,
    as_json: options.AsJson = False,
) -> None:
    """Resume a stopped run from its newest checkpoint. The result has the same bits as a run that was not stopped.

    `--set rounds=N` makes a finished run longer.

    Examples: `fedcm resume runs/demo-fedcm-seed1`, `fedcm resume demo-fedcm-seed1 --set rounds=600`
    """
    from fedcm.api.runs import resume as resume_run
    from fedcm.config.overrides import read_table
    from fedcm.runs.folder import RunFolder, folder_exists

    with command_session(data_dir, "start it again") as (stop_requested, launch), results_on_stdout(as_json):
        folder = RunFolder.open(run if folder_exists(run) or not folder_exists(runs_dir / run) else runs_dir / run)
        engine = read_table(folder.experiment).get("engine")
        device = engine.get("device") if isinstance(engine, dict) else None
        finished = resume_run(
            folder.path,
            overrides=settings or (),
            data_dir=data_dir,
            workers=choose_workers(workers, launch, device if isinstance(device, str) else "cpu"),
            track=track or (),
            diagnose_every=diagnose,
            progress=True,
            notify=say,
            stop_requested=stop_requested,
            launch=launch,
        )
    exit_after(finished, as_json)
