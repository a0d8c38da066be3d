"""What an admin starts: `fedcm federation run` and `resume`, followed to their end."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedcm.cli import options
from fedcm.cli.federation.watch_commands import AdminKit, RunName
from fedcm.errors import UserError
from fedcm.runs.progress import say

if TYPE_CHECKING:
    from fedcm.config.experiment import Experiment
    from fedcm.federation.kit import Kit

_CHANGEABLE = tuple(
    f"federation.{key}"
    for key in ("deadline", "quorum", "wait", "drop_after", "retry_after", "give_up_after", "norm_bound")
)
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
    from fedcm.config.experiment import load_experiment
    from fedcm.federation.admin.admin import admin_of
    from fedcm.federation.admin.fetching import reject_other_run
    from fedcm.federation.admin.following import reject_taken, submit
    from fedcm.federation.kit import read_kit
    from fedcm.federation.server.leading import at_server
    from fedcm.runs.starting import default_name, reject_unusable_name

    party, chosen = read_kit(kit), load_experiment(experiment, options.changes(settings, seed))
    name = name or default_name(chosen)
    reject_unusable_name(name)
    if not detach:
        reject_other_run(runs_dir / name)
    with admin_of(party) as admin:
        there = admin.connected()
        named = [site.strip() for site in (sites or "").split(",") if site.strip()]
        asked = named or chosen.federation.sites or there
        if not asked:
            raise UserError(
                f"a run needs sites, and none is connected to {party.host}; start one with `fedcm federation site`"
            )
        for site in sorted(set(asked) - set(there)):
            say(f"{site} is not connected now; the run begins without it if the quorum is there")
        reject_taken(admin, name)
        federation = chosen.federation.model_copy(update={"sites": sorted(asked)})
        chosen = at_server(chosen.model_copy(update={"federation": federation}))
        job = submit(admin, name, chosen, go_on=False)
    say(f"run {name} was submitted for {len(asked)} sites: {', '.join(sorted(asked))}")
    if not detach:
        _follow(party, name, chosen, job, runs_dir, restarts, patience)


def resume(
    run: RunName,
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

    from fedcm.config.experiment import read_experiment
    from fedcm.config.overrides import apply_overrides
    from fedcm.federation.admin.admin import admin_of
    from fedcm.federation.admin.fetching import reject_other_run
    from fedcm.federation.admin.following import submit
    from fedcm.federation.kit import read_kit

    for setting in settings or ():
        if setting.partition("=")[0] not in _CHANGEABLE:
            raise UserError(f"a run goes on as it began, but for {', '.join(_CHANGEABLE)}, got {setting!r}")
    party = read_kit(kit)
    if not detach:
        reject_other_run(runs_dir / run)
    with admin_of(party) as admin:
        before = admin.newest(run)
        if not before.over and admin.ask(before.id, "state") is not None:
            raise UserError(f"the run {run!r} goes on already; `fedcm federation status {run}`")
        chosen = read_experiment(apply_overrides(tomllib.loads(admin.experiment(before.id)), settings or ()))
        if not before.over:
            admin.abort(before.id)  # one that the engine lost would hold its place for ever
        job = submit(admin, run, chosen, go_on=True)
    say(f"run {run} was submitted again")
    if not detach:
        _follow(party, run, chosen, job, runs_dir, restarts, patience)


def _follow(
    kit: "Kit", run: str, experiment: "Experiment", job: str, runs_dir: Path, restarts: int, patience: float
) -> None:
    from fedcm.cli.terminal.federation import shown_run
    from fedcm.federation.admin.admin import admin_of
    from fedcm.federation.admin.fetching import fetched
    from fedcm.federation.admin.following import followed

    passing = followed(kit, run, experiment, job, say, restarts=restarts, patience=patience)
    try:
        last = shown_run(passing, run, experiment.rounds)
    except KeyboardInterrupt:
        say(f"the run goes on; `fedcm federation status {run}` tells how far it is, `stop {run}` stops it")
        raise typer.Exit(130) from None
    if last.state == "failed":
        raise UserError(last.why)
    if last.metrics or last.state == "finished":  # the last job may have had no round left to do
        with admin_of(kit) as admin:
            place = fetched(admin, admin.newest(run).id, run, runs_dir, fresh=True)
        print(f"run: {place}")
    if last.state != "finished":
        say(f"run {run} {last.state}{f': {last.why}' if last.why else ''}")
        raise typer.Exit(1)
