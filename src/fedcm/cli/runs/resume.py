"""`fedcm resume`: continue a stopped run."""

from pathlib import Path
from typing import Annotated

import typer

from fedcm.api.progress import say
from fedcm.cli import options
from fedcm.cli.session import choose_workers, command_session, keep_stdout_for_results, print_outcome_and_exit


def resume(
    run: Annotated[Path, typer.Argument(help="The run's folder, or its name in the folder of runs.")],
    overrides: Annotated[
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
    from fedcm.runs.folder import find_run

    with command_session(data_dir, "start it again") as (stop_requested, launch), keep_stdout_for_results(as_json):
        folder = find_run(run, runs_dir)
        finished = resume_run(
            folder.path,
            overrides=overrides or (),
            data_dir=data_dir,
            workers=choose_workers(workers, launch, folder.read_device()),
            track=track or (),
            diagnose_every=diagnose,
            progress=True,
            notify=say,
            stop_requested=stop_requested,
            launch=launch,
        )
    print_outcome_and_exit(finished, as_json)
