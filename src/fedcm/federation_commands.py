"""`fedcm federation`: a real federation, from its certificates to the trained model. An admin's commands are here."""

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedcm import options, provision_commands, serve_commands
from fedcm.progress import say
from fedcm.refusal import Refused

if TYPE_CHECKING:
    from fedcm.experiment import Experiment
    from fedcm.federation.kit import Kit

federation_app = typer.Typer(
    no_args_is_help=True,
    help="""A real federation: sites keep their data and train on their own machines (docs/guides/federation.md).

An organiser makes it (`init`), each party starts its part (`server`, `site`), an admin runs experiments (`run`).""",
)

_ENDED = {
    "FINISHED:COMPLETED": "over",
    "FINISHED:EXECUTION_EXCEPTION": "failed",
    "FINISHED:ABORTED": "ended by the engine",
}
_CHANGEABLE = tuple(
    f"federation.{key}"
    for key in ("deadline", "quorum", "wait", "drop_after", "retry_after", "give_up_after", "norm_bound")
)
AdminKit = Annotated[
    Path, typer.Option("--kit", envvar="FEDCM_KIT", help="The admin's folder, as its operator got it.")
]
Run = Annotated[str, typer.Argument(metavar="RUN", help="The run's name; `status` lists them.")]
Restarts = Annotated[int, typer.Option(min=0, help="How often a run that the engine lost is submitted again.")]
Patience = Annotated[float, typer.Option(min=0, help="Seconds that the server may be away while a run is followed.")]
Detach = Annotated[bool, typer.Option("--detach", help="Submit the run and leave; `status` and `fetch` tell the rest.")]


def run(
    experiment: options.ExperimentPath,
    kit: AdminKit,
    settings: options.Settings = None,
    seed: options.Seed = None,
    name: Annotated[
        str | None, typer.Option(help="The run's name; made from experiment, algorithm and seed unless given.")
    ] = None,
    sites: Annotated[
        str | None, typer.Option(metavar="A,B,…", help="Who takes part; everyone who is connected unless given.")
    ] = None,
    runs_dir: options.RunsDir = Path("runs"),
    detach: Detach = False,
    restarts: Restarts = 3,
    patience: Patience = 600.0,
) -> None:
    """Run an experiment over the sites that are connected, follow it, and fetch the result like any run's.

    Ctrl-C stops following; the run goes on (`fedcm federation stop` stops it).

    Example: `fedcm federation run experiments/demo.toml --kit admins/lead@example.org --set rounds=20`
    """
    from fedcm.experiment import load
    from fedcm.federation.admin import admin_of
    from fedcm.federation.following import refuse_taken, submit
    from fedcm.federation.kit import read_kit
    from fedcm.federation.leading import at_server
    from fedcm.starting import default_name, refuse_unusable_name

    party, chosen = read_kit(kit), load(experiment, options.changes(settings, seed))
    name = name or default_name(chosen)
    refuse_unusable_name(name)
    if not detach:
        _refuse_other_run(runs_dir / name)
    with admin_of(party) as admin:
        there = admin.connected()
        named = [site.strip() for site in (sites or "").split(",") if site.strip()]
        asked = named or chosen.federation.sites or there
        if not asked:
            raise Refused(
                f"a run needs sites, and none is connected to {party.host}; start one with `fedcm federation site`"
            )
        for site in sorted(set(asked) - set(there)):
            say(f"{site} is not connected now; the run begins without it if the quorum is there")
        refuse_taken(admin, name)
        federation = chosen.federation.model_copy(update={"sites": sorted(asked)})
        chosen = at_server(chosen.model_copy(update={"federation": federation}))
        job = submit(admin, name, chosen, go_on=False)
    say(f"run {name} was submitted for {len(asked)} sites: {', '.join(sorted(asked))}")
    if not detach:
        _follow(party, name, chosen, job, runs_dir, restarts, patience)


def resume(
    run: Run,
    kit: AdminKit,
    settings: options.Settings = None,
    runs_dir: options.RunsDir = Path("runs"),
    detach: Detach = False,
    restarts: Restarts = 3,
    patience: Patience = 600.0,
) -> None:
    """Go on with a run that was stopped or lost, from the last round that the server has.

    How long to wait for whom may be changed; everything else is as the run began.

    Example: `fedcm federation resume demo-fedcm-seed1 --kit admins/lead@example.org --set federation.deadline=60`
    """
    import tomllib

    from fedcm.experiment import read
    from fedcm.federation.admin import admin_of
    from fedcm.federation.following import submit
    from fedcm.federation.kit import read_kit
    from fedcm.overrides import override

    for setting in settings or ():
        if setting.partition("=")[0] not in _CHANGEABLE:
            raise Refused(f"a run goes on as it began, but for {', '.join(_CHANGEABLE)}, got {setting!r}")
    party = read_kit(kit)
    if not detach:
        _refuse_other_run(runs_dir / run)
    with admin_of(party) as admin:
        before = admin.newest(run)
        if not before.over and admin.ask(before.id, "state") is not None:
            raise Refused(f"the run {run!r} goes on already; `fedcm federation status {run}`")
        chosen = read(override(tomllib.loads(admin.experiment(before.id)), settings or ()))
        if not before.over:
            admin.abort(before.id)  # one that the engine lost would hold its place for ever
        job = submit(admin, run, chosen, go_on=True)
    say(f"run {run} was submitted again")
    if not detach:
        _follow(party, run, chosen, job, runs_dir, restarts, patience)


def status(
    kit: AdminKit, run: Annotated[str | None, typer.Argument(metavar="[RUN]")] = None, as_json: options.AsJson = False
) -> None:
    """Who is connected, which runs there are, and how far they are; with a run's name, how it ended too.

    Example: `fedcm federation status --kit admins/lead@example.org`
    """
    from fedcm.federation.admin import admin_of
    from fedcm.federation.kit import read_kit
    from fedcm.report.federation import federation_table

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


def _row(admin: Any, job: Any, *, whole: bool) -> dict[str, Any]:
    """What a run that is over left behind is as large as its model, so it is looked at when one run is asked for."""
    from fedcm.federation.admin import Unreachable
    from fedcm.federation.following import outcome_of

    try:
        outcome = outcome_of(admin, job.id) if whole or not job.over else None
    except Unreachable:
        raise
    except Refused:  # somebody else's run: the engine's word for it is all that one may know
        outcome = None
    row = {"run": job.run, "state": _ENDED.get(job.state, job.state.lower()), "submitted": job.submitted, "job": job.id}
    if outcome is None:
        return row if job.over else row | {"state": "starting, or lost (`resume` goes on with it)"}
    return row | {"state": outcome.state, "rounds": outcome.rounds, "why": outcome.why, "last": outcome.metrics}


def stop(run: Run, kit: AdminKit) -> None:
    """Stop a run after the round it is at; everything before is saved, and `resume` goes on.

    Example: `fedcm federation stop demo-fedcm-seed1 --kit admins/lead@example.org`
    """
    from fedcm.federation.admin import admin_of
    from fedcm.federation.kit import read_kit

    with admin_of(read_kit(kit)) as admin:
        job = admin.newest(run)
        if job.over:
            raise Refused(f"the run {run!r} is over already ({job.state.lower()})")
        if admin.ask(job.id, "stop") is None:
            admin.abort(job.id)
    say(f"run {run} stops; go on with `fedcm federation resume {run}`")


def logs(run: Run, kit: AdminKit) -> None:
    """What happened in a run: who did not answer, whose reply was refused and why.

    Example: `fedcm federation logs demo-fedcm-seed1 --kit admins/lead@example.org`
    """
    from fedcm.federation.admin import admin_of, downloaded
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
    run: Run,
    kit: AdminKit,
    runs_dir: options.RunsDir = Path("runs"),
    fresh: Annotated[bool, typer.Option("--fresh", help="Replace a run of the same name.")] = False,
) -> None:
    """Fetch a run that is over: its metrics, its summary and the trained model, as a run's folder like any other.

    Example: `fedcm federation fetch demo-fedcm-seed1 --kit admins/lead@example.org && fedcm report runs`
    """
    from fedcm.federation.admin import admin_of
    from fedcm.federation.kit import read_kit

    with admin_of(read_kit(kit)) as admin:
        place = _fetched(admin, admin.newest(run).id, run, runs_dir, fresh=fresh)
    print(f"run: {place}")


def deal(
    experiment: options.ExperimentPath,
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder for the files.")],
    sites: Annotated[str, typer.Option(metavar="A,B,…", help="The sites' names; site-1, site-2, … unless given.")] = "",
    settings: options.Settings = None,
    seed: options.Seed = None,
    data_dir: options.DataDir = None,
) -> None:
    """Deal an experiment's data out to sites, an .npz each, to try a federation before the real data are there.

    Example: `fedcm federation deal experiments/demo.toml --set split.clients=3 -o dealt`
    """
    from fedcm.experiment import load
    from fedcm.federation.deal import deal as dealt

    chosen = load(experiment, options.changes(settings, seed))
    files, same_bits = dealt(chosen, [name for name in sites.split(",") if name], output, data_dir)
    for file in files:
        print(file)
    if same_bits:
        print("for the bits of the simulation: " + " ".join(f"--set '{setting}'" for setting in same_bits))


def _follow(
    kit: "Kit", run: str, experiment: "Experiment", job: str, runs_dir: Path, restarts: int, patience: float
) -> None:
    from fedcm.federation.admin import admin_of
    from fedcm.federation.following import followed
    from fedcm.report.federation import shown_run

    passing = followed(kit, run, experiment, job, say, restarts=restarts, patience=patience)
    try:
        last = shown_run(passing, run, experiment.rounds)
    except KeyboardInterrupt:
        say(f"the run goes on; `fedcm federation status {run}` tells how far it is, `stop {run}` stops it")
        raise typer.Exit(130) from None
    if last.state == "failed":
        raise Refused(last.why)
    if last.metrics or last.state == "finished":  # the last job may have had no round left to do
        with admin_of(kit) as admin:
            place = _fetched(admin, admin.newest(run).id, run, runs_dir, fresh=True)
        print(f"run: {place}")
    if last.state != "finished":
        say(f"run {run} {last.state}{f': {last.why}' if last.why else ''}")
        raise typer.Exit(1)


def _fetched(admin: Any, job: str, run: str, runs_dir: Path, *, fresh: bool) -> Path:
    from fedcm.federation.admin import downloaded
    from fedcm.federation.outcome import RESULT

    place = runs_dir / run
    with downloaded(admin, job) as folder:
        found = [file.parent for file in folder.rglob(f"{RESULT}/experiment.toml")]
        if not found:
            raise Refused(f"the run {run!r} has no result yet; `fedcm federation status {run}` tells how it stands")
        if place.exists() and not fresh:
            raise Refused(f"{str(place)!r} is there already; give another --runs-dir, or --fresh to replace it")
        runs_dir.mkdir(parents=True, exist_ok=True)
        making, old = runs_dir / f".{run}.fetched", runs_dir / f".{run}.before"
        for leftover in (making, old):
            shutil.rmtree(leftover, ignore_errors=True)
        shutil.copytree(found[0], making)
        if place.exists():
            place.rename(old)
        making.rename(place)
        shutil.rmtree(old, ignore_errors=True)
    return place


def _refuse_other_run(place: Path) -> None:
    """What was fetched before is fetched again; a run of one's own is not to be replaced by it."""
    if place.exists() and not (place / "federation.log").is_file():
        raise Refused(
            f"{str(place)!r} is a run of its own, which the fetched one would replace; give another --name or "
            "--runs-dir"
        )


for command in (
    provision_commands.init,
    provision_commands.request,
    provision_commands.approve,
    provision_commands.join,
    provision_commands.renew,
    serve_commands.check,
    serve_commands.server,
    serve_commands.site,
    serve_commands.unit,
    run,
    status,
    stop,
    resume,
    logs,
    fetch,
    deal,
):
    federation_app.command()(command)
