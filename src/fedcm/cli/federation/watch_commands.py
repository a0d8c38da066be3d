"""What an admin asks of runs that are there: `fedcm federation status`, `stop`, `logs`, `fetch`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedcm.cli import options
from fedcm.errors import UserError
from fedcm.runs.progress import say

if TYPE_CHECKING:
    from fedcm.federation.admin.admin import Admin, Job

_ENDED = {
    "FINISHED:COMPLETED": "over",
    "FINISHED:EXECUTION_EXCEPTION": "failed",
    "FINISHED:ABORTED": "ended by the engine",
}
AdminKit = Annotated[
    Path, typer.Option("--kit", envvar="FEDCM_KIT", help="The admin's folder, as its operator got it.")
]
RunName = Annotated[str, typer.Argument(metavar="RUN", help="The run's name; `status` lists them.")]


def status(
    kit: AdminKit, run: Annotated[str | None, typer.Argument(metavar="[RUN]")] = None, as_json: options.AsJson = False
) -> None:
    """Who is connected, which runs there are, and how far they are; with a run's name, how it ended too.

    Example: `fedcm federation status --kit admins/lead@example.org`
    """
    from fedcm.cli.terminal.federation import federation_table
    from fedcm.federation.admin.admin import admin_of
    from fedcm.federation.kit import read_kit

    with admin_of(read_kit(kit)) as admin:
        jobs = [admin.newest(run)] if run is not None else admin.jobs()
        newest = {job.run: job for job in reversed(jobs)}
        rows = [_row(admin, job, whole=run is not None) for job in newest.values()]
        sites = admin.connected()
    if as_json:
        print(json.dumps({"sites": sites, "runs": rows}, indent=2))
        return
    print(f"connected: {', '.join(sites) or 'nobody'}")
    if rows:
        federation_table(rows)
        if run is None and any("last" not in row for row in rows):
            print("`fedcm federation status RUN` tells how a run that is over ended")


def _row(admin: "Admin", job: "Job", *, whole: bool) -> dict[str, Any]:
    """What a run that is over left behind is as large as its model, so it is looked at when one run is asked for."""
    from fedcm.federation.admin.admin import UnreachableError
    from fedcm.federation.admin.following import outcome_of

    try:
        outcome = outcome_of(admin, job.id) if whole or not job.over else None
    except UnreachableError:
        raise
    except UserError:  # somebody else's run: the engine's word for it is all that one may know
        outcome = None
    row = {"run": job.run, "state": _ENDED.get(job.state, job.state.lower()), "submitted": job.submitted, "job": job.id}
    if outcome is None:
        return row if job.over else row | {"state": "starting, or lost (`resume` goes on with it)"}
    return row | {"state": outcome.state, "rounds": outcome.rounds, "why": outcome.why, "last": outcome.metrics}


def stop(run: RunName, kit: AdminKit) -> None:
    """Stop a run after the round it is at; everything before is saved, and `resume` goes on.

    Example: `fedcm federation stop demo-fedcm-seed1 --kit admins/lead@example.org`
    """
    from fedcm.federation.admin.admin import admin_of
    from fedcm.federation.kit import read_kit

    with admin_of(read_kit(kit)) as admin:
        job = admin.newest(run)
        if job.over:
            raise UserError(f"the run {run!r} is over already ({job.state.lower()})")
        if admin.ask(job.id, "stop") is None:
            admin.abort(job.id)
    say(f"run {run} stops; go on with `fedcm federation resume {run}`")


def logs(run: RunName, kit: AdminKit) -> None:
    """What happened in a run: who did not answer, whose reply was refused and why.

    Example: `fedcm federation logs demo-fedcm-seed1 --kit admins/lead@example.org`
    """
    from fedcm.federation.admin.admin import admin_of, downloaded
    from fedcm.federation.kit import read_kit
    from fedcm.federation.outcome import LOG, RESULT

    with admin_of(read_kit(kit)) as admin:
        job = admin.newest(run)
        told = admin.ask(job.id, "state")
        if told is not None:
            lines = told["lines"]
        else:
            with downloaded(admin, job.id) as folder:
                found = list(folder.rglob(f"{RESULT}/{LOG}"))
                lines = found[0].read_text(encoding="utf-8").splitlines() if found else []
    print("\n".join(lines) if lines else f"nothing is known of {run}: its job ended before it began ({job.state})")


def fetch(
    run: RunName,
    kit: AdminKit,
    runs_dir: options.RunsDir = Path("runs"),
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Move a run of the same name to `archive` in the runs' folder.")
    ] = False,
) -> None:
    """Fetch a run that is over: its metrics, its summary and the trained model, as a run's folder like any other.

    Example: `fedcm federation fetch demo-fedcm-seed1 --kit admins/lead@example.org && fedcm report runs`
    """
    from fedcm.federation.admin.admin import admin_of
    from fedcm.federation.admin.fetching import fetched
    from fedcm.federation.kit import read_kit

    with admin_of(read_kit(kit)) as admin:
        place = fetched(admin, admin.newest(run).id, run, runs_dir, fresh=fresh)
    print(f"run: {place}")
